// Our frames with a bare map of queues behind them: what the wire costs alone. No leases, tokens, rights, checks or
// events.

import { createServer } from "node:net";
import { decodeLine, encodeFlags, encodeOk } from "../../src/protocol/frames.ts";
import {
  decodeClientHello,
  encodeServerHello,
  PACKAGE_VERSION,
  PROTOCOL_LIMITS,
  PROTOCOL_VERSION,
} from "../../src/protocol/handshake.ts";
import { LineDecoder } from "../../src/protocol/lines.ts";
import { randomId } from "../../src/util/ids.ts";
import { answerListen } from "./baseline.ts";

const RUN_ID = randomId();
const HELD_ANSWER = '["held","1",1,30000]';
const SERVER_HELLO = encodeServerHello({
  protocol: PROTOCOL_VERSION,
  version: PACKAGE_VERSION,
  runId: RUN_ID,
  sessionMs: 30_000,
  endsWithConnection: false,
  traits: {
    lease: { claim: true },
    manyKeys: true,
    permits: "any",
    fencing: true,
    fifo: true,
    durability: "restart",
    recall: false,
  },
  recoveryRemainingMs: 0,
  limits: { ...PROTOCOL_LIMITS, framesPerLine: 2_000 },
});

interface WaitingClaim {
  readonly id: string;
  readonly grant: () => void;
}

/** Those who wait behind the one that holds a key, and the key of each claim. */
const lines = new Map<string, WaitingClaim[]>();
const keys = new Map<string, string>();

const server = createServer({ noDelay: true }, (socket) => {
  let replies = "";
  const flush = (): void => {
    socket.write(`["${RUN_ID}"${replies}]\n`);
    replies = "";
  };
  const send = (frame: string): void => {
    if (replies === "") process.nextTick(flush);
    replies += `,${frame}`;
  };
  const handle = ([verb, n, ...rest]: readonly [string, number, ...unknown[]]): void => {
    if (verb === "claim") {
      const [id, [key]] = rest as [string, [string]];
      claim(id, key, () => send(encodeOk(n, HELD_ANSWER)));
    } else {
      send(encodeOk(n, verb === "release" ? encodeFlags((rest[0] as string[]).map(release)) : "[]"));
    }
  };
  const reader = new LineDecoder(PROTOCOL_LIMITS.lineBytes);
  let isGreeted = false;
  socket.on("data", (chunk) => {
    for (const line of reader.push(chunk)) {
      if (isGreeted)
        for (const frame of decodeLine(line, RUN_ID).slice(1)) handle(frame as Parameters<typeof handle>[0]);
      else {
        decodeClientHello(line);
        isGreeted = true;
        socket.write(SERVER_HELLO);
      }
    }
  });
  socket.on("error", () => socket.destroy());
});

answerListen(server);

function claim(id: string, key: string, grant: () => void): void {
  const line = lines.get(key);
  keys.set(id, key);
  if (line !== undefined) line.push({ id, grant });
  else {
    lines.set(key, []);
    grant();
  }
}

function release(id: string): boolean {
  const key = keys.get(id);
  if (key === undefined) return false;
  keys.delete(id);
  const next = lines.get(key)?.shift();
  if (next === undefined) lines.delete(key);
  else next.grant();
  return true;
}
