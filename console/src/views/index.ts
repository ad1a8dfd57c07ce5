// Each view is fetched when it is opened first; its name is that of its file.
import type { Component } from 'svelte'

type View = () => Promise<{ default: Component }>

export const views: Record<string, View> = Object.fromEntries(
  Object.entries(import.meta.glob<{ default: Component }>('./*.svelte')).map(([file, load]) => [
    file.slice(2, -'.svelte'.length).toLowerCase(),
    load,
  ]),
)

/** The views as the navigation groups them, with the letter that goes there after `g`. */
export const navigation: [group: 'now' | 'knowledge' | 'work' | 'service', views: [view: string, letter: string][]][] = [
  ['now', [['overview', 'o'], ['data', 'd'], ['feed', 'f']]],
  ['knowledge', [['memory', 'm'], ['conversations', 'c'], ['graph', 'r'], ['notes', 'n'], ['cache', 'h']]],
  ['work', [['queues', 'q'], ['agreement', 'a'], ['decisions', 'p']]],
  ['service', [['durable', 't'], ['access', 'x']]],
]
