/** The gateway of a server that a test composes itself. */

import { createServerGateway } from "../../src/gateway/server-gateway.ts";
import type { GatewayService } from "../../src/gateway/service.ts";
import { createInProcessConnector } from "../../src/server/in-process.ts";
import type { LockService } from "../../src/server/service.ts";

export function serverGateway(service: LockService): GatewayService {
  return createServerGateway(service, (principal) => createInProcessConnector(service, principal));
}
