(root) => {
  // A tile to drag: how often it reads x and y, and what it takes.
  const box = root.querySelector("[data-sizes]");
  const [M, N, K] = box.dataset.sizes.split(" ").map(Number);
  const lines = box.querySelector("path");
  const show = (name, text) => { box.querySelector(`[data-is="${name}"]`).textContent = text; };
  const side = (name) => {
    const input = box.querySelector(`[data-side=${name}]`), length = 2 ** input.value;
    input.previousElementSibling.textContent = length;
    return length;
  };
  const draw = () => {
    const m = side("BLOCK_M"), n = side("BLOCK_N"), k = side("BLOCK_K");
    const xReads = Math.ceil(N / n), yReads = Math.ceil(M / m), bytes = 4 * m * n;
    const moved = (xReads * M * K + yReads * K * N + M * N) / (M * K + K * N + M * N);
    let path = "";
    for (let i = 1; i < yReads; i++) path += `M0 ${(i * m) / 8}H${N / 8}`;
    for (let j = 1; j < xReads; j++) path += `M${(j * n) / 8} 0V${M / 8}`;
    lines.setAttribute("d", path);
    show("programs", xReads * yReads);
    show("x is read", `${xReads}x`);
    show("y is read", `${yReads}x`);
    show("bytes moved", `${moved.toFixed(2)}x the minimum`);
    show("accumulator", `${bytes / 1024} KiB`);
    show("shared memory", `${(6 * (m + n) * k) / 1024} KiB`);
    show("lanes past N", `${Math.round(100 * (1 - N / (xReads * n)))}%`);
  };
  root.oninput = draw;
  draw();
}