(root) => {
  // A query and keys to drag: scores, weights and their mean, as the puzzle defines them.
  const query = root.querySelector("[data-query]");
  const rows = [...root.querySelectorAll("[data-key]")];
  const values = [10, 20, 30, 40, 50];
  const signed = (number) => String(number).replace("-", "\u2212");
  const draw = () => {
    query.previousElementSibling.textContent = signed(query.value);
    const scores = rows.map((row) => {
      const input = row.querySelector("input");
      input.previousElementSibling.textContent = signed(input.value);
      return Number(query.value) * Number(input.value) || 0;
    });
    const terms = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const total = terms.reduce((sum, term) => sum + term, 0);
    let z = 0;
    rows.forEach((row, n) => {
      const weight = terms[n] / total;
      z += weight * values[n];
      row.querySelector("[data-is=score]").textContent = signed(scores[n]);
      row.querySelector("[data-is=weight]").textContent = weight.toFixed(3);
      row.querySelector("[data-bar]").style.width = `${100 * weight}%`;
    });
    root.querySelector("[data-is=z]").textContent = z.toFixed(2);
  };
  root.oninput = draw;
  draw();
}