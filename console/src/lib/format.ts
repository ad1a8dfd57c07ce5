// Numbers with their units, times in the zone of the reader, sizes and spans as people say them.

const number = new Intl.NumberFormat('en')
const MINUTE = 60
const HOUR = 3600
const DAY = 86_400

export function formatNumber(value: number, digits = 0): string {
  return digits ? value.toLocaleString('en', { maximumFractionDigits: digits }) : number.format(Math.round(value))
}

export function formatBytes(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB']
  let unit = 0
  let left = bytes
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000
    unit++
  }
  return `${left >= 100 || unit === 0 ? Math.round(left) : left.toPrecision(2)} ${units[unit]}`
}

/** A span such as `1 h 20 min`, of its two largest units. */
export function formatSpan(seconds: number): string {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`
  if (seconds < MINUTE) return `${seconds < 10 ? seconds.toFixed(1).replace(/\.0$/, '') : Math.round(seconds)} s`
  const whole = Math.round(seconds)
  const parts: [number, string][] = [
    [Math.floor(whole / DAY), 'd'],
    [Math.floor((whole % DAY) / HOUR), 'h'],
    [Math.floor((whole % HOUR) / MINUTE), 'min'],
    [whole % MINUTE, 's'],
  ]
  const first = parts.findIndex(([count]) => count > 0)
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ')
}

/** A time as the reader's clock shows it: without the date when it is of today. */
export function formatTime(moment: string | number | Date, now = new Date()): string {
  const time = new Date(moment)
  if (Number.isNaN(time.getTime())) return String(moment)
  const clock = time.toLocaleTimeString('en-GB')
  if (time.toDateString() === now.toDateString()) return clock
  const day = time.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })
  return `${day}, ${clock}`
}

export function formatAge(moment: string | number | Date, now = Date.now()): string {
  const seconds = (now - new Date(moment).getTime()) / 1000
  if (Math.abs(seconds) < 1) return 'now'
  return seconds > 0 ? `${formatSpan(seconds)} ago` : `in ${formatSpan(-seconds)}`
}

/** A value in one line, cut where it becomes long. */
export function preview(value: unknown, most = 120): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value) ?? ''
  return text.length > most ? `${text.slice(0, most)}…` : text
}

/** Rows as CSV (RFC 4180); a text that a spreadsheet would take for a formula gets an apostrophe in front. */
export function toCsv(names: string[], rows: unknown[][]): string {
  const cell = (value: unknown) => {
    let text = value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value)
    if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  return [names, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n'
}

/** Hand a text to the reader as a file. */
export function download(name: string, text: string | Blob, type = 'text/plain'): void {
  const address = URL.createObjectURL(typeof text === 'string' ? new Blob([text], { type }) : text)
  const link = document.createElement('a')
  link.href = address
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}
