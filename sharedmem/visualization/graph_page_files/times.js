// Moments are milliseconds since 1970; null is an end that is not known or has not come.
const LATEST = Number.MAX_VALUE;
const lower = (moment) => (moment === null ? -Infinity : moment);
const upper = (moment) => (moment === null ? Infinity : moment);

function versionAt(fact, known) {
  return fact.versions.find((version) => version[2] <= known && known < upper(version[3]));
}

function stateAt(fact, world, known) {
  const version = versionAt(fact, known);
  if (!version) return "unknown";
  if (world < lower(version[0])) return "future";
  return world < upper(version[1]) ? "holds" : "past";
}

function dated(moment) {
  const text = new Date(moment).toISOString();
  return text.endsWith("T00:00:00.000Z") ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
}

function interval(version) {
  const from = version[0] === null ? "since an unknown time" : `from ${dated(version[0])}`;
  return version[1] === null ? from : `${from} until ${dated(version[1])}`;
}

function moments(facts, places) {
  const found = new Set();
  for (const fact of facts) {
    for (const version of fact.versions) {
      for (const place of places) if (version[place] !== null) found.add(version[place]);
    }
  }
  return [...found].sort((one, other) => one - other);
}

// One slider: its steps are the moments at which something changes, so that each key press shows a change.
class Timeline {
  constructor(root, steps, start, name, changed) {
    Object.assign(this, { root, steps, name, changed, playing: null });
    this.range = root.querySelector("input[type=range]");
    this.exact = root.querySelector(".exact");
    this.button = root.querySelector(".play");
    this.label = root.querySelector("output");
    this.range.max = String(steps.length - 1);
    this.range.addEventListener("input", () => this.go(Number(this.range.value)));
    this.exact.addEventListener("change", () => this.typed());
    this.button.addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    this.set(start);
  }

  go(step) {
    this.set(step);
    this.changed();
  }

  set(step) {
    this.range.value = String(step);
    this.tell(this.steps[step]);
  }

  tell(moment) {
    this.moment = moment;
    this.label.textContent = this.name(moment);
    this.range.setAttribute("aria-valuetext", this.label.textContent);
    this.exact.value = Number.isFinite(moment) && moment < LATEST ? new Date(moment).toISOString().slice(0, 19) : "";
  }

  typed() {
    const moment = Date.parse(`${this.exact.value}Z`);
    if (Number.isNaN(moment)) return;
    this.stop();
    this.range.value = String(Math.max(0, this.steps.findLastIndex((step) => step <= moment)));
    this.tell(moment);
    this.changed();
  }

  play() {
    const last = this.steps.length - 1;
    if (Number(this.range.value) >= last) this.go(0);
    this.pressed(true);
    this.playing = setInterval(() => {
      const next = Math.min(Number(this.range.value) + 1, last);
      this.go(next);
      if (next >= last) this.stop();
    }, 900);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    this.pressed(false);
  }

  pressed(on) {
    this.button.textContent = on ? "❚❚" : "▶";
    this.button.setAttribute("aria-pressed", String(on));
    this.button.title = on ? "Pause" : "Play";
  }
}
