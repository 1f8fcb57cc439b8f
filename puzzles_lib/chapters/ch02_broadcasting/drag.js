(root) => {
  // A matrix under tiles: the grid and its cost, as the two block sizes are dragged.
  const [M, N, scale, colors] = [$M$, $N$, $SCALE$, [$COLORS$]];
  const [hatch, edge] = ["$HATCH$", "$EDGE$"];
  const said = (name, text) => { root.querySelector(`[data-is="${name}"]`).textContent = text; };
  const comma = (number) => number.toLocaleString("en-US");
  const size = (name) => 2 ** Number(root.querySelector(`[data-log2="${name}"]`).value);
  const tile = (m, n, bm, bn, background) => {
    const one = document.createElement("div");
    one.style.cssText = `position:absolute;box-sizing:border-box;border:1px solid ${edge};` +
      `left:${n * bn * scale}px;top:${m * bm * scale}px;width:${bn * scale}px;height:${bm * scale}px;background:${background}`;
    return one;
  };
  const draw = () => {
    const bm = size("BLOCK_M"), bn = size("BLOCK_N");
    const rows = Math.ceil(M / bm), columns = Math.ceil(N / bn);
    const lanes = rows * bm * columns * bn;
    const moved = rows * N + columns * M + M * N, least = N + M + M * N;
    said("BLOCK_M", bm);
    said("BLOCK_N", bn);
    said("grid", `(${rows}, ${columns})`);
    said("programs", rows * columns);
    said("lanes without an element", `${comma(lanes - M * N)} of ${comma(lanes)}`);
    said("bytes moved", `${comma(4 * moved)} (${(moved / least).toFixed(2)}x)`);
    const layers = { under: [], over: [] };
    for (let m = 0; m < rows; m++) {
      for (let n = 0; n < columns; n++) {
        layers.under.push(tile(m, n, bm, bn, hatch));
        layers.over.push(tile(m, n, bm, bn, colors[(m * columns + n) % colors.length]));
      }
    }
    for (const name in layers) root.querySelector(`[data-layer=${name}]`).replaceChildren(...layers[name]);
  };
  root.oninput = draw;
  draw();
}
