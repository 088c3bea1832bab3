// One direction of the proxy: reads from one socket, writes to the other, with the faults that are set.

import type { Socket } from "node:net";

/** The faults of one direction. They hold for open connections and for later ones. */
export type ProxyDirection = {
  /** A black hole: bytes, and the end of the connection too, wait here; nobody is told. */
  pause(): void;
  /** Lets what waits go on, in order. */
  resume(): void;
  /** What is read from now on goes on this many milliseconds later. 0 turns it off. */
  delay(ms: number): void;
  /** Once, cuts the connection on which the last of this many further bytes passed: mid-frame, or before the reply. */
  cutAfter(bytes: number): void;
  /** Each byte is written in a turn of its own: whoever reads must put frames together. */
  byteByByte(on: boolean): void;
};

export type FaultyDirection = ProxyDirection & {
  carry(from: Socket, to: Socket): void;
  /** Connections that are open now carry nothing any more, and nobody is told; later ones work. */
  silence(): void;
  /** Forgets everything under way. */
  stop(): void;
};

/** Bytes, or how the connection ended: these keep their order, through delays too. */
type ProxiedItem = { readonly at: number; readonly what: Buffer | "end" | "gone" };

export function createFaultyDirection(): FaultyDirection {
  const links = new Set<ProxyLink>();
  const faults: DirectionFaults = { paused: false, delayMs: 0, bytesLeft: Number.POSITIVE_INFINITY, byteByByte: false };
  const setPaused = (paused: boolean): void => {
    faults.paused = paused;
    for (const link of links) link.flush();
  };
  return {
    pause: () => setPaused(true),
    resume: () => setPaused(false),
    delay: (ms) => {
      faults.delayMs = ms;
    },
    cutAfter: (bytes) => {
      faults.bytesLeft = bytes;
    },
    byteByByte: (isEnabled) => {
      faults.byteByByte = isEnabled;
    },
    silence: () => {
      for (const link of links) link.silence();
    },
    carry: (from, to) => {
      const link = openLink(from, to, faults);
      links.add(link);
      to.once("close", () => {
        link.stop();
        links.delete(link);
      });
    },
    stop: () => {
      for (const link of links) link.stop();
      links.clear();
    },
  };
}

type DirectionFaults = { paused: boolean; delayMs: number; bytesLeft: number; byteByByte: boolean };
type ProxyLink = { flush(): void; silence(): void; stop(): void };

function openLink(from: Socket, to: Socket, faults: DirectionFaults): ProxyLink {
  const items: ProxiedItem[] = [];
  let timer: NodeJS.Timeout | undefined;
  let turn: NodeJS.Immediate | undefined;
  let isSilent = false;

  const flush = (): void => {
    // Not reading fills the sender's buffers, as a dead network does.
    const isPaused = faults.paused || isSilent;
    if (isPaused) from.pause();
    else from.resume();
    clearTimeout(timer);
    clearImmediate(turn);
    for (let item = items[0]; item !== undefined && !isPaused; item = items[0]) {
      const waitMs = item.at - performance.now();
      if (waitMs > 0) {
        timer = setTimeout(flush, waitMs);
        return;
      }
      items.shift();
      forward(item.what, from, to, faults);
      if (faults.byteByByte) {
        // Two turns: a reader in this process has read the byte before the next one is written.
        turn = setImmediate(() => {
          turn = setImmediate(flush);
        });
        return;
      }
    }
  };
  const enqueue = (item: ProxiedItem["what"]): void => {
    items.push({ at: performance.now() + faults.delayMs, what: item });
  };

  from.on("data", (chunk: Buffer) => {
    if (faults.byteByByte)
      for (let offset = 0; offset < chunk.length; offset += 1) enqueue(chunk.subarray(offset, offset + 1));
    else enqueue(chunk);
    flush();
  });
  for (const [event, what] of [["end", "end"] as const, ["close", "gone"] as const]) {
    from.once(event, () => {
      enqueue(what);
      flush();
    });
  }
  flush();
  return {
    flush,
    silence: () => {
      isSilent = true;
      flush();
    },
    stop: () => {
      items.length = 0;
      clearTimeout(timer);
      clearImmediate(turn);
    },
  };
}

function forward(item: ProxiedItem["what"], from: Socket, to: Socket, faults: DirectionFaults): void {
  if (item === "gone") to.destroySoon();
  else if (item === "end") to.end();
  else if (item.length < faults.bytesLeft) {
    faults.bytesLeft -= item.length;
    to.write(item);
  } else {
    to.write(item.subarray(0, faults.bytesLeft));
    faults.bytesLeft = Number.POSITIVE_INFINITY;
    to.destroySoon();
    from.destroy();
  }
}
