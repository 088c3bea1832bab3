// A process of bad clients. It is no faster than it says, so that what others feel is the server, not a full machine.

import type { Socket } from "node:net";
import { createConnection } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { randomId } from "../../src/util/ids.ts";
import { parseEndpoint } from "./address.ts";
import { serveCalls } from "./child-rpc.ts";

/** What one bad client does on its socket, until it is closed. */
type FloodAction = (socket: Socket) => void;

interface Flood {
  /** New connections a second. */
  readonly rate: number;
  /** At once; the oldest one goes for a new one. */
  readonly maxConnections: number;
  readonly act: FloodAction;
}

const MIB = 1_048_576;
const helloLine = (): string => `{"hello":{"protocol":1,"session":"${randomId()}"}}\n`;

/** One byte a second of a hello. */
function sendSlowly(socket: Socket): void {
  const text = helloLine();
  let index = 0;
  const timer = setInterval(() => socket.write(text[index++ % text.length] as string), 1_000);
  socket.on("close", () => clearInterval(timer));
}

/** A line that has no end, as fast as the server takes it, up to 100 MB. */
function sendEndlessly(socket: Socket): void {
  const part = Buffer.alloc(MIB, "x");
  let remaining = 100;
  const sendMore = (): void => {
    while (remaining-- > 0 && socket.write(part));
  };
  socket.on("drain", sendMore);
  socket.on("connect", sendMore);
}

/** Says hello, asks for many answers, and reads none. */
function ignoreAnswers(socket: Socket): void {
  socket.write(helloLine());
  socket.once("data", (first: Buffer) => {
    socket.pause();
    const start = /"start":"(\w+)"/.exec(first.toString())?.[1] ?? "";
    const pings = Array.from({ length: 1_000 }, (_, n) => `["ping",${n}]`).join();
    for (let line = 0; line < 50; line++) socket.write(`["${start}",${pings}]\n`);
  });
}

const sendOnce =
  (text: string | Buffer): FloodAction =>
  (socket) =>
    void socket.write(text);

const FLOODS: Readonly<Record<string, Flood>> = {
  "connects that end at once": {
    rate: 500,
    maxConnections: 1,
    act: (socket) => void socket.on("connect", () => socket.destroy()),
  },
  "connects that are reset after a claim": {
    rate: 200,
    maxConnections: 20,
    act(socket) {
      socket.write(helloLine());
      socket.once("data", (first: Buffer) => {
        const start = /"start":"(\w+)"/.exec(first.toString())?.[1] ?? "";
        socket.write(`["${start}",["claim",1,"${randomId()}",["flood"],200]]\n`);
        socket.resetAndDestroy();
      });
    },
  },
  "connections that say nothing": { rate: 500, maxConnections: 2_000, act: () => undefined },
  "hellos of a byte a second": { rate: 100, maxConnections: 500, act: sendSlowly },
  "lines of 100 MB": { rate: 10, maxConnections: 4, act: sendEndlessly },
  "clients that never read": { rate: 5, maxConnections: 20, act: ignoreAnswers },
  "JSON nested 100,000 deep": { rate: 50, maxConnections: 50, act: sendOnce(`${"[".repeat(100_000)}\n`) },
  "HTTP on the lock port": { rate: 200, maxConnections: 50, act: sendOnce("GET / HTTP/1.1\r\nHost: x\r\n\r\n") },
  "TLS on the lock port": {
    rate: 200,
    maxConnections: 50,
    act: sendOnce(Buffer.from("16030100f8010000f40303".padEnd(500, "0"), "hex")),
  },
};

async function runFlood({ kind, address, ms }: { kind: string; address: string; ms: number }): Promise<number> {
  const { rate, maxConnections, act } = FLOODS[kind] as Flood;
  const sockets: Socket[] = [];
  const startedAt = performance.now();
  let attemptCount = 0;
  while (performance.now() - startedAt < ms) {
    // caught up with the clock, a few at a time
    const dueCount = Math.floor(((performance.now() - startedAt) / 1_000) * rate) + 1;
    for (; attemptCount < dueCount; attemptCount++) {
      const socket = createConnection(parseEndpoint(address));
      // its end is the server's right
      socket.on("error", () => undefined);
      act(socket);
      if (!socket.isPaused()) socket.resume();
      sockets.push(socket);
      if (sockets.length > maxConnections) sockets.shift()?.destroy();
    }
    await delay(2);
  }
  for (const socket of sockets) socket.destroy();
  return attemptCount;
}

serveCalls({ kinds: () => Object.keys(FLOODS), flood: runFlood });
