import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

// Relative addresses: the service may be mounted below any path.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  build: {
    outDir: '../sharedmem/faces/rest/console_files',
    emptyOutDir: true,
    // The policy of the service allows scripts from its own origin alone, so nothing is put in line.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    target: 'es2023',
  },
  server: { proxy: { '/api': 'http://127.0.0.1:8420', '/health': 'http://127.0.0.1:8420' } },
  test: { include: ['src/**/*.test.ts'] },
})
