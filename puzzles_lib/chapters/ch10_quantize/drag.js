(root) => {
  // Bits and group size to drag: what values come back as, what that takes, and how far it is off.
  const columns = [...root.querySelectorAll("[data-value]")];
  const x = columns.map((column) => Number(column.dataset.value));
  const sliders = [...root.querySelectorAll("[data-slider]")];
  const top = Math.max(...x), bottom = Math.min(...x);
  const plot = root.querySelector("[data-trail]");
  const [left, upper, wide, tall, x0, x1, y0, y1] = plot.dataset.trail.split(" ").map(Number);
  const tried = root.querySelector("[data-tried]"), now = root.querySelector("[data-now]");
  const add = (cost, error) => {
    const at = [left + (wide * (cost - x0)) / (x1 - x0), upper + (tall * Math.log(y1 / error)) / Math.log(y1 / y0)];
    const [cx, cy] = at.map((place) => place.toFixed(1));
    const dots = [...tried.children];
    if (!dots.some((dot) => dot.getAttribute("cx") === cx && dot.getAttribute("cy") === cy)) {
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [name, value] of Object.entries({ cx, cy, r: 3 })) dot.setAttribute(name, value);
      tried.append(dot);
    }
    now.setAttribute("cx", cx);
    now.setAttribute("cy", cy);
  };
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
        const dense = (200 * (high - low)) / (top - bottom) < 4 * (2 ** bits - 1);
        levels.backgroundImage = dense ? "none" : "linear-gradient(rgba(128,128,128,.45) 1px,transparent 1px)";
        levels.backgroundSize = `100% calc(100%/${2 ** bits - 1})`;
        column.style.background = `rgba(128,128,128,${(start / group) % 2 ? 0.24 : 0.1})`;
      });
    }
    show("cost", bits + 32 / group);
    const least = Math.min(...scales).toFixed(3), largest = Math.max(...scales).toFixed(3);
    show("scale", scales.length === 1 ? largest : `${least} to ${largest}`);
    add(bits + 32 / group, Math.sqrt(off / size));
    show("error", `${(100 * Math.sqrt(off / size)).toFixed(1)}%`);
  };
  root.oninput = draw;
  draw();
}