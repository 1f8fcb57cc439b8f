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
    const scales = [];
    let off = 0, size = 0;
    for (let start = 0; start < x.length; start += group) {
      const part = x.slice(start, start + group), low = Math.min(...part);
      const high = Math.max(...part), scale = (high - low) / (2 ** bits - 1);
      scales.push(scale);
      part.forEach((value, i) => {
        const back = low + Math.round((value - low) / scale) * scale, column = columns[start + i];
        off += (back - value) ** 2;
        size += value ** 2;
        column.querySelector("[data-back]").style.top = `${(100 * (top - back)) / (top - bottom)}%`;
        const levels = column.querySelector("[data-levels]").style;
        levels.top = `${(100 * (top - high)) / (top - bottom)}%`;
        levels.height = `${(100 * (high - low)) / (top - bottom)}%`;
        levels.backgroundSize = `100% calc(100%/${2 ** bits - 1})`;
        column.style.background = `rgba(128,128,128,${(start / group) % 2 ? 0.24 : 0.1})`;
      });
    }
    show("cost", bits + 32 / group);
    const least = Math.min(...scales).toFixed(3), largest = Math.max(...scales).toFixed(3);
    show("scale", scales.length === 1 ? largest : `${least} to ${largest}`);
    show("error", `${(100 * Math.sqrt(off / size)).toFixed(1)}%`);
  };
  root.oninput = draw;
  draw();
}