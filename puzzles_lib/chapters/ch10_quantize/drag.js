(root) => {
  // Bits and group size to drag: what values come back as, what that takes, and how far it is off.
  const columns = [...root.querySelectorAll("[data-value]")];
  const x = columns.map((column) => Number(column.dataset.value));
  const sliders = [...root.querySelectorAll("[data-slider]")];
  const top = Math.max(...x), bottom = Math.min(...x);
  const show = (name, text) => { root.querySelector(`[data-is=${name}]`).textContent = text; };
  const draw = () => {
    const chosen = {};
    for (const slider of sliders) {
      const name = slider.dataset.slider;
      chosen[name] = Number(slider.dataset.choices.split(",")[slider.value]);
      show(name, chosen[name]);
    }
    const { bits, group } = chosen;
    let largest = 0, off = 0, size = 0;
    for (let start = 0; start < x.length; start += group) {
      const part = x.slice(start, start + group), low = Math.min(...part);
      const scale = (Math.max(...part) - low) / (2 ** bits - 1);
      largest = Math.max(largest, scale);
      part.forEach((value, i) => {
        const back = low + Math.round((value - low) / scale) * scale, column = columns[start + i];
        off += (back - value) ** 2;
        size += value ** 2;
        column.querySelector("[data-back]").style.top = `${(100 * (top - back)) / (top - bottom)}%`;
        column.style.background = `rgba(128,128,128,${(start / group) % 2 ? 0.24 : 0.1})`;
      });
    }
    show("cost", bits + 32 / group);
    show("scale", largest.toFixed(3));
    show("error", `${(100 * Math.sqrt(off / size)).toFixed(1)}%`);
  };
  root.oninput = draw;
  draw();
}