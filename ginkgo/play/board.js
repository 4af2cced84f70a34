// A shogi board as SVG, for pages that show one: `ginkgo play` and the server's page.
"use strict";
const KANJI = { P: "歩", L: "香", N: "桂", S: "銀", G: "金", B: "角", R: "飛", K: "玉",
  "+P": "と", "+L": "杏", "+N": "圭", "+S": "全", "+B": "馬", "+R": "龍" };
// Real pieces differ in size by rank.
const SIZES = { P: .84, L: .88, N: .9, S: .94, G: .94, B: .98, R: .98, K: 1 };
const CELL = 46, LEFT = 76, TOP = 40, EDGE = 9 * CELL, RANKS = "abcdefghi";
const HAND_SLOT = 46;

// Whether a font here has kanji: where none has, all of them look the same.
const hasKanji = (() => {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d", { willReadFrequently: true });
  canvas.width = canvas.height = 40;
  const looks = ["歩", "龍"].map(sign => {
    pen.clearRect(0, 0, 40, 40);
    pen.font = "30px serif";
    pen.fillText(sign, 4, 32);
    return pen.getImageData(0, 0, 40, 40).data.join();
  });
  return looks[0] !== looks[1];
})();

function element(parent, name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function pieces(sfen) {
  const found = {};
  sfen.split(" ")[0].split("/").forEach((row, rank) => {
    let file = 9, plus = "";
    for (const sign of row) {
      if (/[0-9]/.test(sign)) file -= +sign;
      else if (sign === "+") plus = "+";
      else {
        found[file + RANKS[rank]] = { kind: plus + sign.toUpperCase(), white: sign === sign.toLowerCase() };
        plus = ""; file -= 1;
      }
    }
  });
  return found;
}

function hands(sfen) {
  const held = { b: [], w: [] };
  let count = "";
  for (const sign of sfen.split(" ")[2]) {
    if (/[0-9]/.test(sign)) count += sign;
    else if (sign !== "-") {
      held[sign === sign.toUpperCase() ? "b" : "w"].push([sign.toUpperCase(), +(count || 1)]);
      count = "";
    }
  }
  return held;
}

// A board in an <svg viewBox="0 0 590 500">.
class Board {
  // turned: White is below.
  constructor(svg) { this.svg = svg; this.turned = false; }

  corner(square) {
    const file = +square[0], rank = RANKS.indexOf(square[1]);
    const x = this.turned ? file - 1 : 9 - file, y = this.turned ? 8 - rank : rank;
    return [LEFT + x * CELL, TOP + y * CELL];
  }

  center(square) { const [x, y] = this.corner(square); return [x + CELL / 2, y + CELL / 2]; }

  // A wooden pentagon that points away from its owner.
  piece(x, y, kind, white, count) {
    const size = SIZES[kind.at(-1)], turn = white !== this.turned ? " rotate(180)" : "";
    const group = element(this.svg, "g", { class: "piece", transform: `translate(${x} ${y})${turn} scale(${size})` });
    element(group, "polygon", { points: "0,-20 11.5,-15 16.5,20 -16.5,20 -11.5,-15" });
    const sign = !hasKanji ? kind : kind === "K" && white ? "王" : KANJI[kind];
    element(group, "text", { y: 3, "font-size": sign.length > 1 ? 19 : 25, "font-weight": hasKanji ? "normal" : "bold",
      fill: kind[0] === "+" ? "#c00000" : "#1a1a1a" }, sign);
    if (count > 1) element(this.svg, "text", { class: "label", x: x + 22, y: y + 14 }, count);
  }

  // sfen: the position; last: the move before it (USI) or undefined; chosen: a square, or a piece in
  // hand ("P*"), that is lit; targets: squares where it may go; click: told the place clicked at.
  draw({ sfen, last, chosen = null, targets = [], click = null }) {
    const svg = this.svg;
    svg.replaceChildren();
    element(svg, "rect", { class: "wood", x: LEFT - 6, y: TOP - 6, width: EDGE + 12, height: EDGE + 12, rx: 3 });
    for (const rank of RANKS) for (let file = 1; file < 10; file++) {
      const square = file + rank, [x, y] = this.corner(square);
      const kind = square === chosen ? "chosen" : targets.includes(square) ? "target"
        : last && last.slice(2, 4) === square ? "last" : last && last.slice(0, 2) === square ? "from" : "";
      const made = element(svg, "rect", { x, y, width: CELL, height: CELL, class: `square ${kind}` });
      if (click) made.addEventListener("click", () => click(square));
    }
    for (const x of [3, 6]) for (const y of [3, 6])
      element(svg, "circle", { cx: LEFT + x * CELL, cy: TOP + y * CELL, r: 3, fill: "#6b4d1e" });
    for (let index = 1; index < 10; index++) {
      const [x] = this.center(index + "a"), [, y] = this.center("1" + RANKS[index - 1]);
      element(svg, "text", { class: "label", x, y: TOP - 16 }, index);
      element(svg, "text", { class: "label", x: LEFT + EDGE + 14, y }, RANKS[index - 1]);
    }
    for (const [square, found] of Object.entries(pieces(sfen)))
      this.piece(...this.center(square), found.kind, found.white, 1);
    const held = hands(sfen), mover = sfen.split(" ")[1];
    for (const side of ["b", "w"]) {
      const near = (side === "w") === this.turned, x = near ? LEFT + EDGE + 50 : 30;
      element(svg, "rect", { class: "stand", x: x - 24, width: 60, rx: 3, height: 7 * HAND_SLOT + 4,
        y: near ? TOP + EDGE - 7 * HAND_SLOT + 2 : TOP - 6 });
      held[side].forEach(([kind, count], index) => {
        const y = near ? TOP + EDGE - 20 - index * HAND_SLOT : TOP + 20 + index * HAND_SLOT;
        const made = element(svg, "rect", { x: x - 22, y: y - 22, width: 56, height: 44,
          class: chosen === kind + "*" && side === mover ? "chosen" : "held" });
        if (click) made.addEventListener("click", () => side === mover && click(kind + "*"));
        this.piece(x, y, kind, side === "w", count);
      });
    }
  }
}

// Black's win rates, one a position (null: unknown), in an <svg> of this size.
function drawRates(svg, rates, width, height) {
  const step = Math.min(10, width / Math.max(1, rates.length - 1));
  svg.replaceChildren();
  element(svg, "line", { x1: 0, y1: height / 2, x2: width, y2: height / 2, stroke: "#aaa" });
  const points = rates.map((rate, index) => [index * step, rate]).filter(([, rate]) => rate !== null);
  element(svg, "polyline", { fill: "none", stroke: "#1668c0", "stroke-width": 2,
    points: points.map(([x, rate]) => `${x},${height - height * rate}`).join(" ") });
  return step;
}
