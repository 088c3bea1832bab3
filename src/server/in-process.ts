/** Connects a client of this process to its server, without a socket. */

import type { Principal } from "../auth/access-control.ts";
import type { Connector } from "../net/transport.ts";
import { createConnectError } from "../net/transport.ts";
import type { LockService } from "./service.ts";

/** @param principal the account of the client, which it need not prove */
export function createInProcessConnector(service: LockService, principal: Principal): Connector {
  return {
    url: "the server of this process",
    connect(events) {
      let isOpen = true;
      const end = (error: Error | null): void => {
        if (!isOpen) return;
        isOpen = false;
        queueMicrotask(() => events.onClosed(error));
      };
      if (service.isDraining) {
        end(createConnectError("ECONNRESET", "the server is stopping"));
        return { write: ignore, close: ignore, keepAlive: ignore };
      }
      const connection = service.acceptInProcess(
        {
          write: (text) => queueMicrotask(() => isOpen && events.onData(Buffer.from(text))),
          close: () => queueMicrotask(() => end(null)),
        },
        principal,
      );
      const receive = (text: string): void => {
        if (isOpen && !service.isDraining && connection.isReadable) connection.receive(text.trimEnd().split("\n"));
      };
      queueMicrotask(() => isOpen && events.onConnected?.());
      return {
        // whole lines, as the client encodes them
        write: (data) => queueMicrotask(() => receive(String(data))),
        close: () => {
          isOpen = false;
          queueMicrotask(() => connection.transportClosed());
        },
        keepAlive: ignore,
      };
    },
  };
}

function ignore(): void {
  // nothing of it keeps the process alive
}
