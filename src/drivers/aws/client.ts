/** What the stores of AWS have in common: the client's shape, its options, and the errors that a retry cannot mend. */

import { Agent } from "node:http";
import { Agent as TlsAgent } from "node:https";
import type { Socket } from "node:net";
import { StoreRefusedError } from "../../errors.ts";
import type { OptionRules } from "../../util/validate.ts";
import { isObject, stringRule } from "../../util/validate.ts";

/** The part of a client of the AWS SDK for JavaScript (version 3) that is used here. */
export interface AwsClientLike {
  send(command: object, options?: { readonly abortSignal?: AbortSignal }): Promise<unknown>;
  destroy?(): void;
  readonly config?: { readonly region?: unknown };
}

/** Where to find the service. Credentials come from where the SDK looks for them; pass a client for others. */
export interface AwsOptions<Client = AwsClientLike> {
  /** An own client; it stays open at close(). Default: one that is made from the other options. */
  readonly client?: Client;
  /** Default: from the environment, as the SDK has it. */
  readonly region?: string;
  /** The url of a service that is not of AWS, without user and password. */
  readonly endpoint?: string;
}

/** As the SDK has it. */
const MAX_SOCKETS = 50;

/** Settings of an own client. A conditional write that is sent again reports its own success as a conflict. */
export function clientSettings({ region, endpoint }: AwsOptions): object {
  return {
    maxAttempts: 1,
    requestHandler: {
      httpAgent: createAgent(Agent),
      httpsAgent: createAgent(TlsAgent),
      // its timer would keep the process alive for seconds
      socketAcquisitionWarningTimeout: 1,
    },
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && { endpoint }),
  };
}

/** Its connections do not keep the process alive: a request that nothing answers would for as long as it is repeated. */
function createAgent<A extends Agent>(Class: new (options: object) => A): A {
  const agent = new Class({ keepAlive: true, maxSockets: MAX_SOCKETS });
  const createConnection = agent.createConnection.bind(agent);
  agent.createConnection = (...args) => {
    const socket = createConnection(...args);
    (socket as Socket | undefined)?.unref();
    return socket;
  };
  // if it is true and not only truthy, the SDK begins each request with a timer of three seconds, which does the same
  Object.assign(agent, { keepAlive: 1 });
  const reuseSocket = agent.reuseSocket.bind(agent);
  agent.reuseSocket = (socket, request) => {
    // removes a listener that the agent has added, and would add again
    reuseSocket(socket, request);
    (socket as Socket).unref();
  };
  return agent;
}

export const AWS_RULES: OptionRules<AwsOptions> = {
  client: (value) =>
    isObject(value) && typeof value.send === "function" ? null : "a client of the AWS SDK, version 3",
  region: stringRule,
  endpoint: endpointRule,
};

function endpointRule(value: unknown): string | null {
  const isUrl = typeof value === "string" && /^https?:$/.test(URL.canParse(value) ? new URL(value).protocol : "");
  if (isUrl && !/\/\/[^/]*@/.test(value)) return null;
  return "a url of http: or https: without user and password";
}

/** An error of the SDK, as far as it is looked at. */
interface AwsError extends Error {
  readonly $metadata?: { readonly httpStatusCode?: number; readonly attempts?: number };
}

/** Names of errors that stay the same however often the call is repeated. */
const REFUSALS: readonly string[] = [
  "AccessDenied",
  "AccessDeniedException",
  "AuthorizationHeaderMalformed",
  "CredentialsProviderError",
  "IncompleteSignatureException",
  "InvalidAccessKeyId",
  "InvalidBucketName",
  "InvalidSignatureException",
  "MissingAuthenticationTokenException",
  "NoSuchBucket",
  "NotImplemented",
  "PermanentRedirect",
  "ResourceNotFoundException",
  "SignatureDoesNotMatch",
  "UnrecognizedClientException",
  "ValidationException",
];

/**
 * Calls the service.
 * @throws StoreRefusedError for an error that a retry cannot mend; else the SDK's own error
 */
export async function callAws<T>(
  client: AwsClientLike,
  command: object,
  { signal, subject }: { readonly signal?: AbortSignal; readonly subject: string },
): Promise<T> {
  try {
    return (await client.send(command, signal && { abortSignal: signal })) as T;
  } catch (error) {
    const { name, message, $metadata } = error as AwsError;
    const isRedirect = $metadata?.httpStatusCode === 301;
    if (!REFUSALS.includes(name) && !isRedirect && message !== "Region is missing") throw error;
    // without a cause: that of a wrong signature has the parts from which it was made
    throw new StoreRefusedError(
      `${subject} cannot be used: ${isRedirect ? "it is in another region" : message} (${name})`,
    );
  }
}

/** Is it an error of this name, or with this status of HTTP? */
export function isAwsError(error: unknown, ...kinds: readonly (string | number)[]): boolean {
  const { name, $metadata } = error as AwsError;
  return kinds.includes(name) || kinds.includes($metadata?.httpStatusCode ?? 0);
}

/**
 * The result of a write whose condition was not met. A client that was passed in may have sent it twice: then the first may have
 * succeeded, and the outcome is unknown.
 * @throws Error in that case
 */
export function conflictUnlessRepeated(error: unknown): "conflict" {
  if (((error as AwsError).$metadata?.attempts ?? 1) === 1) return "conflict";
  throw new Error("the write was repeated by the client, so its outcome is unknown", { cause: error });
}
