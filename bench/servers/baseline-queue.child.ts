// Floor B: a map of queues by key. The front of a queue holds; nothing else is known of it.

import { serveBaseline } from "./baseline.ts";

interface WaitingClaim {
  readonly number: number;
  readonly reply: (number: number) => void;
}

const lines = new Map<string, WaitingClaim[]>();

serveBaseline((kind, number, key, _id, reply) => {
  const line = lines.get(key);
  if (kind === "claim") {
    if (line === undefined) lines.set(key, []);
    else line.push({ number, reply });
    if (line === undefined) reply(number);
    return;
  }
  const next = line?.shift();
  if (next === undefined) lines.delete(key);
  else next.reply(next.number);
  reply(number);
});
