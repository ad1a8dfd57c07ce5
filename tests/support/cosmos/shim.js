// The npm emulator of Cosmos DB, made to behave like the real service where it does not, and to fail on demand.
//
//   node shim.js        listens on a free port of 127.0.0.1, says {"port": N} and ends when its standard input does
//
//   POST /-/faults      a fault for the requests to come:
//                         within        only requests whose path has this text
//                         call          create, replace, upsert, delete, read, query, other, or "any"
//                         method        only requests with this method
//                         times         how many requests it meets (1)
//                         status, substatus, retryAfterMs    the answer instead of the real one
//                         drop          true: the connection is cut instead of an answer
//                         after         true: the request is carried out all the same
//                         delayMs       how long the request waits first
//   POST /-/ahead       {"seconds": N}: what has a ttl is N seconds older
//   GET  /-/log         what was asked and answered: [{call, path, status}], null for a cut connection or none yet
//   POST /-/reset       {"within": TEXT}: forget the faults and the log of these paths
"use strict";

const { setTimeout: sleep } = require("timers/promises");

const MOST_BYTES = 2 * 1024 * 1024;
const LIB = "@vercel/cosmosdb-server/lib/";
const OWNER_IS_MISSING = "1003";

let faults = [];
let log = [];
let aheadS = 0;

// -- what Cosmos does and the emulator does not: its handlers are wrapped before its routes are built -------------

const json = require(LIB + "json");
const partitions = require(LIB + "utils/get-partition-from-header");
const documents = require(LIB + "account/documents").default;

const readJson = json.default;
const bodies = new WeakMap();
// A body can be read from its socket once; the wrappers look at it before the handlers do.
json.default = (request) => {
  if (!bodies.has(request)) bodies.set(request, readJson(request));
  return bodies.get(request);
};

// The emulator goes by the first path of a hierarchical key alone, and takes for one document what are two.
const partitionOf = documents.prototype._getPartition;
documents.prototype._getPartition = function (data) {
  const paths = this._partitionKeyPath;
  return paths.length > 1 ? JSON.stringify(paths.map((path) => data[path.slice(1)])) : partitionOf.call(this, data);
};

const partitionAsked = partitions.parsePartitionKey;
partitions.parsePartitionKey = (header, usual) => {
  const values = JSON.parse(header);
  return values.length > 1 && Array.isArray(values) ? JSON.stringify(values) : partitionAsked(header, usual);
};

const store = documents.prototype._set;
documents.prototype._set = function (data) {
  this.mortal = this.mortal || new Map();
  if (data.ttl > 0) this.mortal.set(data._rid, data);
  else this.mortal.delete(data._rid);
  return store.call(this, data);
};

function bury(items) {
  for (const [rid, data] of items.mortal || []) {
    if (Date.now() / 1000 + aheadS < data._ts + data.ttl) continue;
    items.mortal.delete(rid);
    if (items._data.has(rid)) items.delete(data.id, items._getPartition(data));
  }
}

function refuse(response, status, code, substatus) {
  response.statusCode = status;
  if (substatus) response.setHeader("x-ms-substatus", substatus);
  return { code, message: code };
}

function found(collection, request, id) {
  return collection.document(id, partitions.parsePartitionKey(partitions.default(request), id)).read();
}

function wrap(name, look) {
  const handler = require(LIB + "handler/" + name);
  const inner = handler.default;
  handler.default = async (account, request, response, where) => {
    const collection = account.database(where.dbId).collection(where.collId);
    const properties = collection.read();
    if (!properties) return refuse(response, 404, "NotFound", OWNER_IS_MISSING);
    if (properties.defaultTtl) bury(collection.documents);
    const refusal = look && (await look(collection, request, response, where));
    return refusal || inner(account, request, response, where);
  };
}

const orMissing = (collection, request, response, where) =>
  found(collection, request, where.docId) ? undefined : refuse(response, 404, "NotFound");

async function orUnmatched(collection, request, response) {
  if (!request.headers["if-match"]) return undefined;
  const { id } = await json.default(request);
  return found(collection, request, id) ? undefined : refuse(response, 412, "PreconditionFailed");
}

wrap("create-document");
wrap("query-documents");
wrap("read-document", orMissing);
wrap("replace-document", orMissing);
wrap("delete-document", orMissing);
wrap("upsert-document", orUnmatched);

// -- faults -------------------------------------------------------------------------------------------------------

const CALLS = { GET: "read", PUT: "replace", DELETE: "delete", PATCH: "patch" };

function callOf(request) {
  if (!request.url.includes("/docs")) return "other";
  if (request.headers["x-ms-documentdb-isquery"]) return "query";
  if (request.headers["x-ms-documentdb-is-upsert"]) return "upsert";
  return CALLS[request.method] || "create";
}

function nextFault(call, { method, url }) {
  const meets = (fault) =>
    url.includes(fault.within) && ["any", call].includes(fault.call) && (fault.method || method) === method;
  const fault = faults.find((one) => one.times > 0 && meets(one));
  if (fault) fault.times -= 1;
  return fault || {};
}

function fail(request, response, fault) {
  if (fault.drop) return request.socket.destroy();
  if (fault.retryAfterMs !== undefined) response.setHeader("x-ms-retry-after-ms", String(fault.retryAfterMs));
  if (fault.substatus) response.setHeader("x-ms-substatus", String(fault.substatus));
  response.statusCode = fault.status;
  response.setHeader("content-type", "application/json");
  return response.end(JSON.stringify({ code: String(fault.status), message: "injected" }));
}

async function serve(request, response, carryOut) {
  const call = callOf(request);
  const fault = Number(request.headers["content-length"]) > MOST_BYTES ? { status: 413 } : nextFault(call, request);
  // In the order in which requests arrive: the end of one that was given up may be seen after its repetition's.
  const entry = { call, path: request.url, status: null };
  log.push(entry);
  response.on("close", () => (entry.status = response.writableFinished ? response.statusCode : null));
  if (fault.delayMs) await sleep(fault.delayMs);
  if (!fault.drop && !fault.status) return carryOut();
  if (!fault.after) {
    request.resume();
    return fail(request, response, fault);
  }
  const end = response.end;
  response.end = () => {
    response.end = end;
    return fail(request, response, fault);
  };
  return carryOut();
}

// -- the server -----------------------------------------------------------------------------------------------------

const orders = {
  "/-/faults": (fault) => faults.push({ within: "", call: "any", times: 1, ...fault }),
  "/-/ahead": ({ seconds }) => (aheadS = seconds),
  "/-/log": () => log,
  "/-/reset": ({ within }) => {
    faults = faults.filter((one) => one.within !== within);
    log = log.filter((one) => !one.path.includes(within));
  },
};

async function obey(request, response) {
  const order = request.method === "POST" ? await readJson(request) : {};
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(orders[request.url](order) ?? null));
}

const server = require(LIB + "index").createHttpServer({ keepAlive: true });
const [emulator] = server.listeners("request");
server.removeAllListeners("request");
// Longer than any client keeps a connection: the server must not be the one to close it under a request.
server.keepAliveTimeout = 600_000;
server.on("request", (request, response) => {
  if (request.url.startsWith("/-/")) return obey(request, response);
  return serve(request, response, () => emulator.call(server, request, response));
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: server.address().port })));
process.stdin.on("end", () => process.exit(0)).resume();
