/**
 * What the locks protect: for each key a fenced register, which refuses a token below the highest that it has seen, and an unfenced
 * one, which accepts every write. It runs in a process of its own that no fault strikes, and writes the history: each event at once,
 * in the order of arrival. What a worker has sent before it was killed is in the history.
 */

import { closeSync, openSync, writeSync } from "node:fs";
import type { Socket } from "node:net";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import type { HistoryEvent, RegisterEvent, RegisterReply, RegisterRequest } from "./history.ts";

interface KeyState {
  highestToken: bigint;
  value: number;
}

/** The registers of all keys. */
class Register {
  readonly #keys = new Map<string, KeyState>();

  /** Applies a request. @param at the time, in microseconds since the start of the run */
  apply(request: RegisterRequest, at: number): RegisterEvent {
    const state = this.#keys.get(request.key) ?? { highestToken: -1n, value: 0 };
    this.#keys.set(request.key, state);
    const token = request.token === null ? null : BigInt(request.token);
    const accepted = token === null || token >= state.highestToken;
    if (token !== null && accepted) state.highestToken = token;
    const { value } = state;
    if (request.event === "write") state.value = request.base + 1;
    return { ...request, at, accepted, value };
  }
}

/**
 * Serves the registers on a Unix socket, and appends the history to a file, until its standard input ends.
 * @param startedAt nanoseconds of the machine's monotonic clock at the start of the run, in decimal
 */
export function serveRegister(socketPath: string, historyPath: string, startedAt: string): void {
  const origin = BigInt(startedAt);
  const file = openSync(historyPath, "a", 0o600);
  const register = new Register();
  const append = (event: HistoryEvent): void => void writeSync(file, `${JSON.stringify(event)}\n`);
  const onLine = (socket: Socket, line: string): void => {
    const event = parseLine(line);
    if (event === null) return;
    if (event.event !== "enter" && event.event !== "write") {
      append(event);
      return;
    }
    const applied = register.apply(event, Number((process.hrtime.bigint() - origin) / 1_000n));
    append(applied);
    const { worker, op, accepted, value } = applied;
    const reply: RegisterReply = { worker, op, accepted, value };
    socket.write(`${JSON.stringify(reply)}\n`);
  };
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    const lines = createInterface({ input: socket });
    lines.on("error", () => undefined);
    lines.on("line", (line) => onLine(socket, line));
  });
  server.listen(socketPath, () => void process.stdout.write("listening\n"));
  process.stdin.resume().once("end", () => {
    server.close();
    closeSync(file);
    process.exit(0);
  });
}

/** Null: the last line of a process that was killed before it had sent all of it. */
function parseLine(line: string): HistoryEvent | RegisterRequest | null {
  try {
    return JSON.parse(line) as HistoryEvent | RegisterRequest;
  } catch {
    return null;
  }
}
