/** The bucket of a store on S3: the library that reaches it, and its lifecycle rules. */

import type { Check } from "../../spi/driver.ts";
import type { AwsClientLike } from "../aws/client.ts";
import { callAws, isAwsError } from "../aws/client.ts";
import { createMissingError, nullIfMissing } from "../missing-library.ts";

export interface OpenBucket {
  readonly sdk: S3Sdk;
  readonly client: AwsClientLike;
}

type Command = new (input: object) => object;

/** The part of @aws-sdk/client-s3 that is used here. Its own types would make it a dependency of the published types. */
interface S3Sdk {
  readonly S3Client: new (settings: object) => AwsClientLike;
  readonly GetBucketLifecycleConfigurationCommand: Command;
  readonly GetObjectCommand: Command;
  readonly PutObjectCommand: Command;
}

/** @throws StoreRefusedError if it is not installed */
export async function importSdk(): Promise<S3Sdk> {
  try {
    return (await import("@aws-sdk/client-s3" as string)) as S3Sdk;
  } catch (error) {
    nullIfMissing("@aws-sdk/client-s3", error);
    throw createMissingError("locks in S3", ["@aws-sdk/client-s3"]);
  }
}

interface LifecycleRule {
  readonly ID?: string;
  readonly Status?: string;
  /** An older form of the filter. */
  readonly Prefix?: string;
  readonly Filter?: {
    readonly Prefix?: string;
    readonly Tag?: object;
    readonly And?: { readonly Prefix?: string; readonly Tags?: readonly object[] };
  };
  readonly Expiration?: { readonly Days?: number; readonly Date?: unknown };
}

interface BucketPart {
  readonly Bucket: string;
  readonly prefix: string;
  readonly signal?: AbortSignal;
}

/**
 * A rule that deletes objects of locks some time after their last write; null if there is none, and a text that says why the
 * rules could not be read.
 */
export async function findEndingRule(
  { sdk, client }: OpenBucket,
  { Bucket, prefix, signal }: BucketPart,
): Promise<LifecycleRule | string | null> {
  const command = new sdk.GetBucketLifecycleConfigurationCommand({ Bucket });
  try {
    const answer = await client.send(command, signal && { abortSignal: signal });
    const { Rules = [] } = answer as { readonly Rules?: readonly LifecycleRule[] };
    return Rules.find((rule) => endsObjects(rule, prefix)) ?? null;
  } catch (error) {
    if (isAwsError(error, "NoSuchLifecycleConfiguration")) return null;
    // a right that locks do not need, and other stores have no such rules
    if (isAwsError(error, "AccessDenied", "NotImplemented", "MethodNotAllowed", 501)) return (error as Error).message;
    return callAws(client, command, { ...(signal && { signal }), subject: `the bucket "${Bucket}" of S3` });
  }
}

/** Objects of locks have no tags. */
function endsObjects({ Status, Prefix, Filter, Expiration }: LifecycleRule, prefix: string): boolean {
  const isTagged = Filter?.Tag !== undefined || (Filter?.And?.Tags ?? []).length > 0;
  const rulePrefix = Filter?.And?.Prefix ?? Filter?.Prefix ?? Prefix ?? "";
  const overlaps = prefix.startsWith(rulePrefix) || rulePrefix.startsWith(prefix);
  const ends = Expiration?.Days !== undefined || Expiration?.Date !== undefined;
  return Status === "Enabled" && ends && overlaps && !isTagged;
}

/** open() has refused a rule that it could read. */
export async function checkLifecycle(bucket: OpenBucket, part: BucketPart): Promise<Check> {
  const name = "lifecycle";
  const rule = await findEndingRule(bucket, part).catch((error: Error) => error.message);
  if (rule === null) return { status: "ok", name, message: "no rule deletes objects of locks" };
  if (typeof rule === "string") return { status: "unknown", name, message: `its rules cannot be read: ${rule}` };
  return {
    status: "fail",
    name,
    message: `the rule "${rule.ID ?? ""}" deletes objects of locks`,
    hint: "exclude their prefix from the rule, or keep locks in a bucket of their own",
  };
}
