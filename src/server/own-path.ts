/**
 * A server looks at its own socket from outside: once a second it reads its start id back through the path. Should
 * another answer there, or nobody, the election has failed us, and two servers would both grant.
 */

import { connect } from "node:net";
import { decodeWelcome, encodeHello, PROTOCOL, VERSION } from "../protocol/hello.ts";

const EVERY_MS = 1_000;
const PATIENCE_MS = 5_000;
const MOST_BYTES = 65_536;
/** A look may fall into a moment of somebody's repair; twice in a row it does not. */
const MISSES = 2;

/** What was found on the path: ours, another's server, nobody; or a look that told nothing (a full backlog). */
type Found = "ours" | "another" | "nobody" | "unknown";

/** Calls `lost` once, when the path leads to another server or to none. Ends no process and keeps none alive. */
export function watchOwnPath(path: string, start: string, lost: (why: string) => void): { close(): void } {
  let misses = 0;
  let timer = setTimeout(look, EVERY_MS).unref();
  let closed = false;

  function look(): void {
    void whoIs(path, start).then((found) => {
      if (closed) return;
      misses = found === "nobody" ? misses + 1 : 0;
      if (found === "another") return lost(`another server answers on ${path}`);
      if (misses >= MISSES) return lost(`nobody can reach this server any more: ${path} was removed or replaced`);
      timer = setTimeout(look, EVERY_MS).unref();
    });
  }

  return {
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}

function whoIs(path: string, start: string): Promise<Found> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.unref();
    let text = "";
    const settle = (found: Found): void => {
      socket.destroy();
      resolve(found);
    };
    socket.setTimeout(PATIENCE_MS, () => settle("unknown"));
    socket.setEncoding("utf8");
    socket.once("connect", () => {
      const nobody = { protocol: PROTOCOL, version: VERSION, label: "", session: "", pid: null, pidStart: null };
      socket.write(encodeHello({ ...nobody, tether: false, probe: true }));
    });
    socket.on("data", (chunk: string) => {
      text += chunk;
      if (text.includes("\n")) settle(startIn(text) === start ? "ours" : "another");
      else if (text.length > MOST_BYTES) settle("another");
    });
    socket.once("error", ({ code }: NodeJS.ErrnoException) => {
      settle(code === "ECONNREFUSED" || code === "ENOENT" ? "nobody" : "unknown");
    });
    socket.once("close", () => settle("unknown"));
  });
}

/** Null: whoever answers is no server of this version. */
function startIn(text: string): string | null {
  try {
    return decodeWelcome(text.slice(0, text.indexOf("\n"))).start;
  } catch {
    return null;
  }
}
