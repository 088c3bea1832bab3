/** A client of etcd: calls over its JSON gateway, and one stream of watches to the member that answers them. */

import type { GatewayOptions } from "./gateway.ts";
import { Gateway } from "./gateway.ts";
import type { Header, RangeResponse, Txn, TxnResponse } from "./messages.ts";
import type { Watch, WatchListener, WatchTarget } from "./watch-stream.ts";
import { WatchStream } from "./watch-stream.ts";

interface EtcdClientOptions extends GatewayOptions {
  /** The stream broke, or the calls go to another member from now on. */
  readonly onDisconnected: () => void;
  /** The stream is open again. */
  readonly onReconnected: () => void;
}

export class EtcdClient {
  readonly #gateway: Gateway;
  readonly #stream: WatchStream;

  constructor(options: EtcdClientOptions) {
    const { clock, timeoutMs, onDisconnected, onReconnected } = options;
    this.#gateway = new Gateway(options, () => {
      this.#stream.reopen();
      onDisconnected();
    });
    this.#stream = new WatchStream({
      open: (events) => this.#gateway.openStream("/v3/watch", events),
      ...{ clock, timeoutMs, random: Math.random },
      onBreak: onDisconnected,
      onReopened: onReconnected,
    });
  }

  /** @throws as Gateway.call() */
  call<T>(path: string, body: object, timeoutMs?: number): Promise<T> {
    return this.#gateway.call<T>(path, body, timeoutMs);
  }

  /** Runs a transaction, which goes through the log. */
  txn(txn: Txn, timeoutMs?: number): Promise<TxnResponse> {
    return this.call<TxnResponse>("/v3/kv/txn", txn, timeoutMs);
  }

  /** Reads through the log. */
  range(
    range: Readonly<Record<string, string | number | boolean>>,
    timeoutMs?: number,
  ): Promise<RangeResponse & { readonly header: Header }> {
    return this.call("/v3/kv/range", range, timeoutMs);
  }

  watch(target: WatchTarget, listener: WatchListener): Watch {
    return this.#stream.watch(target, listener);
  }

  /** Does the stream answer? See WatchStream.confirm(). */
  confirm(withinMs: number): Promise<boolean> {
    return this.#stream.confirm(withinMs);
  }

  close(): void {
    this.#stream.close();
    this.#gateway.close();
  }
}
