// What the change feed does not tell (puts and claims of tasks, who holds a lock) is asked for, while the page is seen.

/** Load again every so many seconds while somebody looks; returns what ends it. */
export function reloadEvery(seconds: number, reload: () => void): () => void {
  const timer = setInterval(() => {
    if (!document.hidden) reload()
  }, seconds * 1000)
  return () => clearInterval(timer)
}
