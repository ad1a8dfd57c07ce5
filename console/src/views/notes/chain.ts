// A chain of notes as a graph of versions: one row for each note, newest first, and lanes that come together.
import type { Schemas } from '../../api/client'

export type Note = Schemas['Note']

export interface ChainRow {
  note: Note
  /** The lane of its dot. */
  lane: number
  /** Lanes that come from above and end in the dot or go on below. */
  above: number[]
  through: number[]
  /** Lanes of its sources, which leave the dot downwards. */
  below: number[]
}

/** Rows from the newest note to the oldest; `lanes` is the most that stand beside each other. */
export function chainRows(oldestFirst: Note[]): { rows: ChainRow[]; lanes: number } {
  const known = new Set(oldestFirst.map((note) => note.id))
  const waiting: (string | null)[] = []
  let lanes = 1
  const free = () => {
    const at = waiting.indexOf(null)
    return at < 0 ? waiting.push(null) - 1 : at
  }
  const rows = oldestFirst.toReversed().map((note): ChainRow => {
    const above = waiting.flatMap((id, at) => (id === note.id ? [at] : []))
    const lane = above[0] ?? free()
    for (const at of above) waiting[at] = null
    const through = waiting.flatMap((id, at) => (id === null ? [] : [at]))
    waiting[lane] = '·'
    const below = (note.sources ?? []).filter((id) => known.has(id)).map((id, i) => {
      const at = i === 0 ? lane : free()
      waiting[at] = id
      return at
    })
    if (!below.length) waiting[lane] = null
    lanes = Math.max(lanes, waiting.length)
    return { note, lane, above, through, below }
  })
  return { rows, lanes }
}

/** The first words of a note that are not a heading. */
export function firstLine(note: { memory_note: string; id: string }): string {
  const lines = note.memory_note.split('\n').map((line) => line.trim())
  return lines.find((line) => line && !line.startsWith('#')) ?? lines.find((line) => line) ?? note.id
}
