(root) => {
  // Boards that a kernel has computed, as hexadecimal numbers: a bit per cell, row by row.
  const box = root.querySelector("[data-frames]");
  const width = Number(box.dataset.width), count = width * Number(box.dataset.height);
  const frames = box.dataset.frames.split(",").map((packed) => {
    let bits = "";
    for (const digit of packed) bits += parseInt(digit, 16).toString(2).padStart(4, "0");
    return bits.padStart(count, "0").slice(-count);
  });
  const group = box.querySelector("g"), slider = box.querySelector("input");
  const button = box.querySelector("button"), told = box.querySelector("b");
  const draw = () => {
    let cells = "";
    [...frames[slider.value]].forEach((bit, at) => {
      if (bit === "1") cells += `<rect x="${at % width}" y="${Math.floor(at / width)}" width="1" height="1"/>`;
    });
    group.innerHTML = cells;
    told.textContent = slider.value;
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "play"; };
  button.onclick = () => {
    if (timer) return stop();
    if (Number(slider.value) === frames.length - 1) slider.value = 0;
    button.textContent = "pause";
    timer = setInterval(() => {
      if (!root.isConnected || Number(slider.value) === frames.length - 1) return stop();
      slider.value = Number(slider.value) + 1;
      draw();
    }, 120);
  };
  slider.oninput = draw;
  draw();
}