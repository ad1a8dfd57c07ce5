// Who changed what by hand, and why: an entry of the list `console-audit`, which is on the feed with the person's name.
import { api, ask } from '../api/client'

/** Key of the list, which keeps its newest entries. */
export const AUDIT = 'console-audit'

/**
 * Write down what is about to be done, then do it: what cannot be written down is not done.
 */
export async function audited<T>(action: string, subject: string, reason: string, change: () => Promise<T>): Promise<T> {
  const entry = { action, subject, reason, at: new Date().toISOString() }
  await ask(api.POST('/api/v1/store/lists/{key}', { params: { path: { key: AUDIT } }, body: { value: entry, max_length: 1000 } }))
  return change()
}
