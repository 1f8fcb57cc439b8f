(root) => {
  // Bits to flip, and a field to shift down: what a word is, and what becomes of it.
  const bits = [...root.querySelectorAll("[data-bit]")];
  const fields = [...root.querySelectorAll("[data-field]")];
  let word = bits.reduce((sum, bit) => sum | (Number(bit.textContent) << bit.dataset.bit), 0);
  let field = Number(root.querySelector("[data-i]").textContent);
  const draw = () => {
    for (const bit of bits) {
      const on = (word >>> bit.dataset.bit) & 1;
      bit.textContent = on;
      bit.setAttribute("aria-pressed", on === 1);
    }
    for (const one of fields) {
      const i = Number(one.dataset.field);
      one.firstChild.textContent = `field ${i}: ${(word >>> (4 * i)) & 15}`;
      one.setAttribute("aria-pressed", i === field);
      one.style.outline = i === field ? "2px solid currentColor" : "";
      one.style.outlineOffset = "-5px";  // inside the color, so that it's seen on any page
    }
    root.querySelector("[data-i]").textContent = field;
    const shifted = word >> (4 * field);
    [word, shifted, shifted & 15].forEach((value, n) => {
      root.querySelector(`[data-bits="${n}"]`).textContent = (value >>> 0).toString(2).padStart(32, "0");
      root.querySelector(`[data-number="${n}"]`).textContent = value;
    });
  };
  for (const bit of bits) bit.onclick = () => { word ^= 1 << bit.dataset.bit; draw(); };
  for (const one of fields) one.onclick = () => { field = Number(one.dataset.field); draw(); };
  draw();
}