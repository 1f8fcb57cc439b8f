(root) => {
  // Scores to drag: maximum, factor and sum after each block, as the kernel keeps them.
  const blocks = [...root.querySelectorAll("[data-block]")];
  const draw = () => {
    let rowMax = -1e30, total = 0;
    for (const block of blocks) {
      const inputs = [...block.querySelectorAll("input")];
      const scores = inputs.map((input) => Number(input.value));
      inputs.forEach((input) => { input.previousElementSibling.textContent = input.value; });
      const newMax = Math.max(rowMax, ...scores);
      const factor = Math.exp(rowMax - newMax), kept = total * factor;
      const added = scores.reduce((sum, score) => sum + Math.exp(score - newMax), 0);
      [rowMax, total] = [newMax, kept + added];
      const shown = { factor, kept, added, denominator: total };
      for (const name in shown) block.querySelector(`[data-is=${name}]`).textContent = shown[name].toFixed(4);
      block.querySelector("[data-is=maximum]").textContent = newMax;
      for (const [name, sum] of Object.entries({ kept, added })) {
        const bar = block.querySelector(`[data-bar=${name}]`);
        bar.style.width = `${(100 * sum) / inputs.length / blocks.length}%`;
      }
    }
  };
  root.oninput = draw;
  draw();
}