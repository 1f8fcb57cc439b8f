(root) => {
  // Scores to drag: maximum, factor and sum after each block, as the kernel keeps them.
  const blocks = [...root.querySelectorAll("[data-block]")];
  const draw = () => {
    let rowMax = -1e30, total = 0, unrepaired = 0;
    for (const block of blocks) {
      const inputs = [...block.querySelectorAll("input")];
      const scores = inputs.map((input) => Number(input.value));
      inputs.forEach((input) => { input.parentElement.querySelector("b").textContent = input.value; });
      const newMax = Math.max(rowMax, ...scores);
      const factor = Math.exp(rowMax - newMax), kept = total * factor;
      const added = scores.reduce((sum, score) => sum + Math.exp(score - newMax), 0);
      [rowMax, total, unrepaired] = [newMax, kept + added, unrepaired + added];
      const shown = { factor, kept, added, denominator: total, "without factors": unrepaired };
      for (const name in shown) block.querySelector(`[data-is="${name}"]`).textContent = shown[name].toFixed(4);
      block.querySelector("[data-is=maximum]").textContent = newMax;
      for (const [name, sum] of Object.entries({ kept, added })) {
        const bar = block.querySelector(`[data-bar=${name}]`);
        bar.style.width = `${(100 * sum) / inputs.length / blocks.length}%`;
      }
    }
    for (const input of root.querySelectorAll("input")) {
      const probability = Math.exp(Number(input.value) - rowMax) / total;
      input.parentElement.querySelector("[data-is=probability]").textContent = probability.toFixed(3);
    }
  };
  root.oninput = draw;
  draw();
}