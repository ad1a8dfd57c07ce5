// The time for ages and countdowns: one timer for the whole page.
class PageClock {
  now = $state(Date.now())

  constructor() {
    setInterval(() => (this.now = Date.now()), 1000)
  }
}

export const clock = new PageClock()
