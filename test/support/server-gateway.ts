/** The gateway of a server that a test composes itself. */

import type { AccessControl } from "../../src/auth/access-control.ts";
import { ALLOW_ALL } from "../../src/auth/access-control.ts";
import type { Dashboard } from "../../src/gateway/dashboard/dashboard.ts";
import { createServerDashboard, createServerGateway } from "../../src/gateway/server-gateway.ts";
import type { GatewayService } from "../../src/gateway/service.ts";
import type { ServerParts } from "../../src/server/compose.ts";
import { createInProcessConnector } from "../../src/server/in-process.ts";
import type { LockService } from "../../src/server/service.ts";

export function serverGateway(service: LockService, access: AccessControl = ALLOW_ALL): GatewayService {
  return createServerGateway(service, access, (principal) => createInProcessConnector(service, principal));
}

/** The pages of that server, which no test opens. */
export function serverDashboard(gateway: GatewayService, { eventLog }: Pick<ServerParts, "eventLog">): Dashboard {
  return createServerDashboard(gateway, eventLog);
}
