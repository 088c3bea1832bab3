/** The proxies of one place: one before each address of the store, with the same faults. */

import type { ProxyDirection } from "./proxy-faults.ts";
import type { Address, TcpProxy } from "./tcp-proxy.ts";
import { tcpProxy } from "./tcp-proxy.ts";

export interface PlaceProxy extends Pick<TcpProxy, "reset" | "close"> {
  readonly addresses: readonly Address[];
  readonly toTarget: PlaceDirection;
  readonly toClient: PlaceDirection;
}

type PlaceDirection = Pick<ProxyDirection, "pause" | "resume" | "delay" | "cutAfter">;

export async function startPlaceProxy(targets: readonly Address[]): Promise<PlaceProxy> {
  const proxies = await Promise.all(targets.map((target) => tcpProxy(target)));
  return {
    addresses: proxies.map(({ address }) => address),
    toTarget: joinDirections(proxies.map(({ toTarget }) => toTarget)),
    toClient: joinDirections(proxies.map(({ toClient }) => toClient)),
    reset() {
      for (const proxy of proxies) proxy.reset();
    },
    close: async () => void (await Promise.all(proxies.map((proxy) => proxy.close()))),
  };
}

function joinDirections(directions: readonly ProxyDirection[]): PlaceDirection {
  return {
    pause() {
      for (const direction of directions) direction.pause();
    },
    resume() {
      for (const direction of directions) direction.resume();
    },
    delay(ms) {
      for (const direction of directions) direction.delay(ms);
    },
    cutAfter(bytes) {
      for (const direction of directions) direction.cutAfter(bytes);
    },
  };
}
