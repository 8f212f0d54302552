// A host of socket.io-client, driven by JSON lines: one command a line on stdin, one report a
// line on stdout. Bytes are base64 in JSON, or a file's path where they are large.
import { createInterface } from "node:readline";
import { readFileSync, writeFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Manager } from "socket.io-client";

const FILE_BYTES = 1 << 16;
const files = mkdtempSync(join(process.env.AGENTIX_INTEROP_TMP ?? tmpdir(), "js-host-"));
let nextFile = 0;
let manager;
const sockets = new Map();

function report(message) {
  process.stdout.write(JSON.stringify(message) + "\n");
}

function encode(arg) {
  if (!Buffer.isBuffer(arg) && !(arg instanceof ArrayBuffer)) return { json: arg ?? null };
  const bytes = Buffer.from(arg);
  if (bytes.length < FILE_BYTES) return { bytes: bytes.toString("base64") };
  const path = join(files, String(nextFile++));
  writeFileSync(path, bytes);
  return { file: path };
}

function decode(arg) {
  if ("file" in arg) return readFileSync(arg.file);
  if ("bytes" in arg) return Buffer.from(arg.bytes, "base64");
  return arg.json;
}

const commands = {
  connect({ url, namespaces, transports, headers }) {
    manager = new Manager(url, {
      transports: transports ?? ["polling", "websocket"],
      extraHeaders: headers ?? undefined,
      autoConnect: false,
      reconnectionDelay: 50,
      reconnectionDelayMax: 200,
    });
    for (const namespace of namespaces) {
      const socket = manager.socket(namespace);
      sockets.set(namespace, socket);
      socket.on("connect", () => report({ joined: namespace }));
      socket.on("disconnect", (reason) => report({ left: namespace, reason }));
      socket.on("connect_error", (e) => report({ refused: namespace, message: String(e.message) }));
      socket.onAny((name, ...args) => report({ namespace, name, args: args.map(encode) }));
      socket.connect();
    }
  },
  emit({ namespace, name, args, ack }) {
    const values = args.map(decode);
    const socket = sockets.get(namespace);
    if (ack === undefined) socket.emit(name, ...values);
    else socket.emit(name, ...values, (...got) => report({ ack, args: got.map(encode) }));
  },
  transport({ tag }) {
    report({ tag, transport: manager.engine?.transport?.name ?? "" });
  },
  cut() { // the transport breaks, without a goodbye
    manager.engine.transport.ws?.terminate?.();
  },
  close() {
    manager?.engine?.close();
    process.exit(0);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  commands[message.do](message);
}
process.exit(0);
