// Decisions of a session: their states, and all that happened as one timeline.
import type { Schemas } from '../../api/client'
import { formatNumber } from '../../lib/format'
import type { Step } from '../../parts/Timeline.svelte'
import type { FeedEntry } from '../../state/changes.svelte'
import { text } from '../../text'

export type Past = Schemas['PastDecision']
export type Execution = Schemas['ExecutionRecord']
export type Refusal = Schemas['RefusedDuplicate']
export type State = Execution['state']
type Tone = 'plain' | 'accent' | 'good' | 'warn' | 'bad'

export const TONES: Record<State, Tone> = { none: 'plain', running: 'accent', succeeded: 'good', failed: 'bad', unknown: 'warn', orphaned: 'warn' }
export const stateOf = (past: Past): State => past.execution?.state ?? 'none'
/** Whether somebody has to say how it ended. */
export const isToResolve = (state: State): boolean => state === 'orphaned' || state === 'unknown'

export function isDecision(entry: FeedEntry): boolean {
  return /^(plan|execution|session|stats)\./.test(entry.operation)
}

export function executionStep(execution: Execution): Step {
  const { state, actor, attempt, fence, timestamp_ms, status, error, order_id } = execution
  const note = [status && text.decisions.statusIs(status), order_id && text.decisions.orderIs(order_id), error].filter(Boolean).join(' · ')
  const title = state === 'running' || state === 'orphaned' ? text.decisions.begun(actor, String(attempt), String(fence)) : text.decisions.endedBy(text.decisions.states[state] ?? state, actor)
  return { title, at: timestamp_ms, note, kind: state === 'orphaned' ? 'accent' : TONES[state] }
}

export function orphanStep(execution: Execution): Step {
  return { title: text.decisions.lapsed(execution.actor), at: execution.lease_ends_ms ?? null, note: text.decisions.mustResolve, kind: 'warn' }
}

const timeOf = (step: Step) => new Date(step.at ?? 0).getTime()

/** What happened to one plan, oldest first. */
export function planSteps({ plan, execution }: Past, refusals: Refusal[]): Step[] {
  const steps: Step[] = [{ title: text.decisions.saved, at: plan.timestamp_ms, note: plan.method || null }]
  for (const one of refusals.filter(({ plan_id }) => plan_id === plan.plan_id)) steps.push(refusalStep(one))
  if (execution) steps.push(executionStep(execution))
  if (execution?.state === 'orphaned') steps.push(orphanStep(execution))
  return steps.sort((a, b) => timeOf(a) - timeOf(b))
}

export function refusalStep(one: Refusal): Step {
  return { title: text.decisions.refusedTo(one.actor, text.decisions.what[one.what] ?? one.what), at: one.timestamp_ms, kind: 'warn' }
}

/** What happened in a session, newest first; each step with what it is about. */
export function sessionSteps(past: Past[], refusals: Refusal[]): Step[] {
  const about = (step: Step, symbol: string, action = ''): Step => ({ ...step, title: `${symbol}${action ? ` ${action}` : ''}: ${step.title}` })
  const steps = past.flatMap(({ plan, execution }) => [
    // In this order, as steps may have happened within one millisecond.
    ...(execution?.state === 'orphaned' ? [about(orphanStep(execution), plan.symbol, plan.action)] : []),
    ...(execution ? [about(executionStep(execution), plan.symbol, plan.action)] : []),
    about({ title: text.decisions.savedWith(formatNumber(100 * plan.confidence)), at: plan.timestamp_ms, note: plan.reasoning }, plan.symbol, plan.action),
  ])
  return [...steps, ...refusals.map((one) => about(refusalStep(one), one.symbol))].sort((a, b) => timeOf(b) - timeOf(a))
}
