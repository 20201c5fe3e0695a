// Search the built site with its own search program, which a browser runs as a worker.
// node search.mjs SITE QUERY...  prints a JSON list for each query: the addresses of its hits, best first.

import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3] // types of the messages of the worker

const [site, ...queries] = process.argv.slice(2)
const folder = join(site, 'assets', 'javascripts', 'workers')
const [worker] = readdirSync(folder).filter((name) => /^search\..*\.js$/.test(name))
const index = JSON.parse(readFileSync(join(site, 'search.json'), 'utf8'))

let answered
globalThis.self = globalThis
globalThis.postMessage = (message) => answered(message)
const send = (type, data, expected) =>
  new Promise((resolve, reject) => {
    answered = (message) =>
      message.type === expected ? resolve(message.data) : reject(new Error(JSON.stringify(message)))
    self.onmessage({ data: { type, data } })
  })

const runGlobally = eval // as a script of a worker, not inside this module
runGlobally(readFileSync(join(folder, worker), 'utf8'))
await send(SETUP, index, READY)
for (const input of queries) {
  const { items } = await send(QUERY, { input }, RESULT)
  console.log(JSON.stringify(items.map(({ id }) => index.items[id].location)))
}
