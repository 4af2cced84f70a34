// The board on which games are replayed, and figures that stay new.
"use strict";
const WINNERS = { b: "Black won", w: "White won", d: "draw" };
const player = document.getElementById("player"), slider = document.getElementById("ply");
const graph = document.getElementById("graph"), about = document.getElementById("about");
const board = new Board(document.getElementById("board"));
let game = null, ply = 0, timer = null, step = 1;

function show(wanted) {
  if (!game) return;
  ply = Math.max(0, Math.min(game.moves.length, wanted));
  slider.value = ply;
  board.draw({ sfen: game.sfens[ply], last: game.moves[ply - 1] });
  const move = ply ? `, ${game.moves[ply - 1]}` : "";
  about.textContent = `Game ${game.number} of ${game.model}: ${WINNERS[game.winner]} (${game.end}). ` +
    `Ply ${ply} of ${game.moves.length}${move}`;
  step = drawRates(graph, game.rates, 420, 120);
  element(graph, "line", { x1: ply * step, x2: ply * step, y1: 0, y2: 120, stroke: "#d55e00" });
}

function stop() { clearInterval(timer); timer = null; }

function play() {
  if (timer) { stop(); return; }
  if (game && ply === game.moves.length) show(0);
  timer = setInterval(() => { show(ply + 1); if (!game || ply === game.moves.length) stop(); }, 700);
}

async function load(number) {
  stop();
  try {
    const answer = await fetch(`/api/v1/games/${number}`);
    if (!answer.ok) throw new Error(answer.status);
    game = await answer.json();
    slider.max = game.moves.length;
    player.hidden = false;
    show(0);
  } catch (error) {
    player.hidden = false;
    about.textContent = `Game ${number} cannot be shown: only the newest ones can.`;
  }
}

function obey(what) {
  if (what === "play") { play(); return; }
  stop();
  if (what === "turn") { board.turned = !board.turned; show(ply); }
  else show(what === "first" ? 0 : what === "last" ? Infinity : ply + Number(what));
}

for (const button of document.querySelectorAll("[data-step]"))
  button.addEventListener("click", () => obey(button.dataset.step));
for (const link of document.querySelectorAll("a[data-game]"))
  link.addEventListener("click", event => {
    event.preventDefault();
    load(link.dataset.game);
    document.getElementById("replay").scrollIntoView();
  });
slider.addEventListener("input", () => { stop(); show(+slider.value); });
graph.addEventListener("click", event => {
  stop();
  show(Math.round(event.offsetX / graph.clientWidth * 420 / step));
});
const KEYS = { ArrowLeft: "-1", ArrowRight: "1", Home: "first", End: "last", " ": "play" };
document.addEventListener("keydown", event => {
  if (!game || event.ctrlKey || event.metaKey || event.altKey) return;
  // A focused button or slider has keys of its own.
  if (!(event.key in KEYS) || /INPUT|BUTTON|A/.test(event.target.tagName)) return;
  event.preventDefault();
  obey(KEYS[event.key]);
});
if (player.dataset.game) load(player.dataset.game);

setInterval(async () => {
  if (document.hidden) return;
  try {
    const status = await (await fetch("/api/v1/status")).json();
    for (const place of document.querySelectorAll("[data-figure]"))
      place.textContent = Number(status[place.dataset.figure]).toLocaleString("en");
  } catch (error) { /* the server is away: the old figures stay */ }
}, 30000);
