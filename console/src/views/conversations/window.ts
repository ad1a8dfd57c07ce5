// What entries of conversations say, by whom, how long they are, and how many of them a context window holds.

export type Part = 'system' | 'user' | 'assistant' | 'tool' | 'other'
export const PARTS: Part[] = ['system', 'user', 'assistant', 'tool', 'other']
const SAME: Record<string, Part> = { human: 'user', ai: 'assistant', agent: 'assistant', model: 'assistant', developer: 'system', function: 'tool' }
const CHARACTERS_A_TOKEN = 4

export const WINDOWS = [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 200_000, 1_000_000]
export const USUAL_WINDOW = 8000

export interface Turn {
  key: string
  position: number
  role: string
  part: Part
  text: string
  value: unknown
  tokens: number
  actor: string
  at: string | null | undefined
}

/** Who speaks, as the frameworks of agents write it. */
export function roleOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) return 'other'
  const { role, type } = value as { role?: unknown; type?: unknown }
  return String(role ?? type ?? 'other')
}

export function partOf(role: string): Part {
  const known = SAME[role] ?? role
  return (PARTS as string[]).includes(known) ? (known as Part) : 'other'
}

/** What is said: the content of a message, or the whole entry where there is none. */
export function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  const content = (value as { content?: unknown } | null)?.content
  if (typeof content === 'string' && content !== '') return content
  if (Array.isArray(content)) {
    const texts = content.map((part) => (typeof part === 'string' ? part : (part as { text?: unknown } | null)?.text)).filter((part) => typeof part === 'string')
    if (texts.length) return texts.join('\n')
  }
  return JSON.stringify(value) ?? ''
}

/** About how many tokens an entry has: all of it counts, also calls of tools beside the text. */
export function tokensOf(value: unknown): number {
  return Math.ceil((typeof value === 'string' ? value : JSON.stringify(value) ?? '').length / CHARACTERS_A_TOKEN)
}

/** How many of the newest turns fit, and their tokens by part. */
export function fit(turns: readonly Turn[], window: number): { count: number; tokens: number; parts: [Part, number][] } {
  const sums = new Map<Part, number>(PARTS.map((part) => [part, 0]))
  let tokens = 0
  let count = 0
  for (const turn of [...turns].reverse()) {
    if (tokens + turn.tokens > window) break
    tokens += turn.tokens
    count++
    sums.set(turn.part, sums.get(turn.part)! + turn.tokens)
  }
  return { count, tokens, parts: [...sums] }
}
