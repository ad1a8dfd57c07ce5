// What a state of a note or of a task looks like.
export function statusKind(status: string | undefined): 'good' | 'warn' | 'bad' | 'plain' | 'accent' {
  if (status === 'active' || status === 'done' || status === undefined) return 'good'
  if (status === 'conflict_pending') return 'warn'
  if (status === 'failed' || status === 'deleted') return 'bad'
  return status === 'running' ? 'accent' : 'plain'
}
