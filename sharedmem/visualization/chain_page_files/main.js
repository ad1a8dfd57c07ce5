// The page: data in, and what is chosen in the picture, by the slider or in the reader shown in all three.
const data = JSON.parse(document.getElementById("data").textContent);
const one = (id) => document.getElementById(id);
const { notes } = data;
let chosen = -1;

const picture = new Picture(notes, (place) => choose(place));
const reader = new Reader(notes, (place) => choose(place));

// The slider goes through time; what came later fades. Who chooses a note in the picture sees it among all.
function choose(place, newest = notes.length - 1) {
  chosen = place;
  picture.show(newest, place < 0 ? newest : place);
  if (place < 0) reader.hide();
  else reader.show(notes[place]);
  const at = place < 0 ? newest : place;
  one("version").value = at;
  const told = notes[at] ? `${at + 1} of ${notes.length} · ${notes[at].made}` : "none";
  one("shown").textContent = told;
  one("version").setAttribute("aria-valuetext", told);
}

function legend() {
  for (const status of STATUSES) {
    const count = notes.filter((note) => note.status === status).length;
    if (!count) continue;
    const sign = drawn("svg", { viewBox: "0 0 12 12", "aria-hidden": "true", class: status }, drawn("rect", { width: 12, height: 12, rx: 3 }));
    one("legend").append(made("li", {}, sign, `${status.replace("_", " ")} ${count}`));
  }
}

function leave() {
  const back = chosen;
  choose(-1);
  picture.boxes[back]?.focus({ preventScroll: true });
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = {
    "+": () => picture.zoom(1.25), "=": () => picture.zoom(1.25), "-": () => picture.zoom(0.8), 0: () => picture.fit(), Escape: leave,
  };
  if (!acts[event.key]) return;
  acts[event.key]();
  event.preventDefault();
}

one("title").textContent = data.title;
one("counts").textContent = `${notes.length} ${notes.length === 1 ? "version" : "versions"}`;
one("version").max = Math.max(0, notes.length - 1);
one("version").disabled = notes.length < 2;
one("version").addEventListener("input", () => choose(Number(one("version").value), Number(one("version").value)));
one("nearer").addEventListener("click", () => picture.zoom(1.25));
one("farther").addEventListener("click", () => picture.zoom(0.8));
one("fit").addEventListener("click", () => picture.fit());
one("close").addEventListener("click", leave);
addEventListener("keydown", pressed);
legend();
const first = notes.findIndex((note) => note.id === data.chosen);
choose(first < 0 ? notes.length - 1 : first);
picture.fit();
document.documentElement.dataset.ready = "true";
