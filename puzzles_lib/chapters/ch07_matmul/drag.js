(root) => {
  // A tile to drag: how often it reads x and y, and what it takes.
  const box = root.querySelector("[data-sizes]");
  const [M, N, K] = box.dataset.sizes.split(" ").map(Number);
  const gap = 8;  // between the tiles, in elements
  const place = (name, x, y, width, height) => {
    const part = box.querySelector(`[data-part=${name}]`);
    for (const [key, value] of Object.entries({ x, y, width, height })) part.setAttribute(key, value);
  };
  const show = (name, text) => { box.querySelector(`[data-is="${name}"]`).textContent = text; };
  const mark = (name, isBroken) => {
    box.querySelector(`[data-broken="${name}"]`).style.display = isBroken ? "" : "none";
  };
  const side = (name) => {
    const input = box.querySelector(`[data-side=${name}]`), length = 2 ** input.value;
    input.previousElementSibling.textContent = length;
    return length;
  };
  const draw = () => {
    const m = side("BLOCK_M"), n = side("BLOCK_N"), k = side("BLOCK_K");
    const xReads = Math.ceil(N / n), yReads = Math.ceil(M / m), bytes = 4 * m * n;
    const moved = (xReads * M * K + yReads * K * N + M * N) / (M * K + K * N + M * N);
    box.querySelector("svg").setAttribute("viewBox", `0 0 ${k + gap + n} ${k + gap + m}`);
    place("x", 0, k + gap, k, m);
    place("y", k + gap, 0, n, k);
    place("z", k + gap, k + gap, n, m);
    show("programs", xReads * yReads);
    show("iterations", Math.ceil(K / k));
    show("x is read", `${xReads}x`);
    show("y is read", `${yReads}x`);
    show("bytes moved", `${moved.toFixed(2)}x the minimum`);
    show("accumulator", `${bytes / 1024} KiB`);
    show("shared memory", `${(6 * (m + n) * k) / 1024} KiB`);
    const [fewest, most, registers, shared] = box.dataset.limits.split(" ").map(Number);
    mark("programs", xReads * yReads < fewest);
    mark("bytes moved", moved >= most);
    mark("accumulator", bytes > registers);
    mark("shared memory", 6 * (m + n) * k > shared);
    show("lanes past N", `${Math.round(100 * (1 - N / (xReads * n)))}%`);
  };
  root.oninput = draw;
  draw();
}