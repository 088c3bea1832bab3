/**
 * The address of a lock server, connections to it without TLS, and what other modules need to reach a driver's server.
 */

import { connect } from "node:net";
import type { Connector } from "../../net/transport.ts";
import { createSocketTransport, toConnectError } from "../../net/transport.ts";
import type { Driver } from "../../spi/driver.ts";
import type { ServerAddress } from "../../util/server-url.ts";
import { formatServerUrl } from "../../util/server-url.ts";
import type { ConnectionOptions } from "./connection.ts";

/** How a driver's server is reached, and under which session. */
export interface ServerEndpoint {
  readonly address: ServerAddress;
  readonly connection: ConnectionOptions;
}

/** How this driver's server is reached; undefined: the driver is not for a Holdfast server. */
export function getServerEndpoint(driver: Driver): ServerEndpoint | undefined {
  return (driver as { readonly serverEndpoint?: ServerEndpoint }).serverEndpoint;
}

/** Creates a connector for a Unix socket or TCP. */
export function createSocketConnector(address: ServerAddress): Connector {
  const url = formatServerUrl(address);
  return {
    url,
    connect(events) {
      const socket = connect("path" in address ? { path: address.path } : { ...address, noDelay: true });
      return createSocketTransport(socket, events, (error) => toConnectError(error, url));
    },
  };
}
