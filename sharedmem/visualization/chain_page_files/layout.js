// Places for notes: a column for each step of evolution, and in it one below the other.
const WIDTH = 190, HEIGHT = 58, GAP_X = 90, GAP_Y = 26;

// Pairs of places, each once: what a note calls its successor, and what a note calls its sources.
function links(notes) {
  const places = new Map(notes.map((note, place) => [note.id, place]));
  const found = new Map();
  const add = (from, to, agreed) => {
    const key = `${from} ${to}`;
    found.set(key, { from, to, agreed: agreed || found.get(key)?.agreed || false });
  };
  notes.forEach((note, place) => {
    if (places.has(note.next)) add(place, places.get(note.next), notes[places.get(note.next)].sources.includes(note.id));
    for (const id of note.sources) if (places.has(id)) add(places.get(id), place, notes[places.get(id)].next === note.id);
  });
  return [...found.values()];
}

// Notes come oldest first: one pass finds each column. A link that points back, in a damaged chain, moves nothing.
function arrange(notes, pairs) {
  const columns = notes.map(() => 0);
  const into = notes.map(() => []);
  for (const { from, to } of pairs) if (from < to) into[to].push(from);
  notes.forEach((_, place) => {
    for (const from of into[place]) columns[place] = Math.max(columns[place], columns[from] + 1);
  });
  // What came from nowhere stands right before what it became.
  for (const { from, to } of pairs) {
    const after = pairs.filter((pair) => pair.from === from && pair.to > from).map((pair) => columns[pair.to]);
    if (from < to && !into[from].length) columns[from] = Math.min(...after) - 1;
  }
  const rows = new Map();
  const tallest = Math.max(1, ...columns.map((column) => columns.filter((other) => other === column).length));
  return notes.map((note, place) => {
    const column = columns[place], row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    const count = columns.filter((other) => other === column).length;
    const top = ((tallest - count) * (HEIGHT + GAP_Y)) / 2;
    return { x: column * (WIDTH + GAP_X), y: top + row * (HEIGHT + GAP_Y) };
  });
}
