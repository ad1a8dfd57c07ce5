const PLACE = 'sharedmem.theme'
export type Theme = 'system' | 'light' | 'dark'

class Appearance {
  theme = $state<Theme>((localStorage.getItem(PLACE) as Theme | null) ?? 'system')

  constructor() {
    this.#show()
  }

  choose(theme: Theme): void {
    this.theme = theme
    localStorage.setItem(PLACE, theme)
    this.#show()
  }

  #show(): void {
    document.documentElement.dataset['theme'] = this.theme
  }
}

export const appearance = new Appearance()
