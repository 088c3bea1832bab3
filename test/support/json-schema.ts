// Checks values against the part of JSON Schema that our OpenAPI document uses. Stricter in one way: a member that the
// document does not name is a fault, so that the document cannot lag behind.

type Schema = Readonly<Record<string, unknown>>;

/** What is wrong with the value, each with where it is; empty: nothing. */
export function findSchemaFaults(value: unknown, schema: Schema, document: Schema, path = "$"): string[] {
  const faults: string[] = [];
  for (const [keyword, keywordValue] of Object.entries(schema)) {
    const check = KEYWORDS[keyword];
    if (check === undefined) throw new Error(`the checker does not know the keyword ${keyword}`);
    faults.push(...check({ value, keywordValue, schema, document, path }));
  }
  return faults;
}

interface SchemaCheck {
  readonly value: unknown;
  readonly keywordValue: unknown;
  readonly schema: Schema;
  readonly document: Schema;
  readonly path: string;
}

type KeywordCheck = (schemaCheck: SchemaCheck) => string[];

const noFaults: KeywordCheck = () => [];
const faultUnless = (right: boolean, { path, value }: SchemaCheck, what: string): string[] =>
  right ? [] : [`${path}: ${JSON.stringify(value)} ${what}`];

const KEYWORDS: Readonly<Record<string, KeywordCheck>> = {
  description: noFaults,
  example: noFaults,
  contentMediaType: noFaults,
  contentSchema: noFaults,
  $ref({ value, keywordValue, document, path }) {
    return findSchemaFaults(value, resolvePointer(String(keywordValue), document), document, path);
  },
  type(schemaCheck) {
    const types = [schemaCheck.keywordValue].flat() as string[];
    return faultUnless(
      types.some((type) => isOfType(type, schemaCheck.value)),
      schemaCheck,
      `is no ${types.join(" or ")}`,
    );
  },
  enum: (schemaCheck) =>
    faultUnless(
      (schemaCheck.keywordValue as unknown[]).includes(schemaCheck.value),
      schemaCheck,
      "is none of the allowed",
    ),
  const: (schemaCheck) =>
    faultUnless(schemaCheck.value === schemaCheck.keywordValue, schemaCheck, `is not ${schemaCheck.keywordValue}`),
  pattern: (schemaCheck) =>
    faultUnless(
      typeof schemaCheck.value !== "string" ||
        new RegExp(String(schemaCheck.keywordValue), "u").test(schemaCheck.value),
      schemaCheck,
      "has another form",
    ),
  minLength: (schemaCheck) =>
    faultUnless(
      typeof schemaCheck.value !== "string" || schemaCheck.value.length >= Number(schemaCheck.keywordValue),
      schemaCheck,
      "is too short",
    ),
  maxLength: (schemaCheck) =>
    faultUnless(
      typeof schemaCheck.value !== "string" || schemaCheck.value.length <= Number(schemaCheck.keywordValue),
      schemaCheck,
      "is too long",
    ),
  minimum: (schemaCheck) =>
    faultUnless(
      typeof schemaCheck.value !== "number" || schemaCheck.value >= Number(schemaCheck.keywordValue),
      schemaCheck,
      "is too small",
    ),
  maximum: (schemaCheck) =>
    faultUnless(
      typeof schemaCheck.value !== "number" || schemaCheck.value <= Number(schemaCheck.keywordValue),
      schemaCheck,
      "is too large",
    ),
  minItems: (schemaCheck) =>
    faultUnless(
      !Array.isArray(schemaCheck.value) || schemaCheck.value.length >= Number(schemaCheck.keywordValue),
      schemaCheck,
      "has too few",
    ),
  maxItems: (schemaCheck) =>
    faultUnless(
      !Array.isArray(schemaCheck.value) || schemaCheck.value.length <= Number(schemaCheck.keywordValue),
      schemaCheck,
      "has too many",
    ),
  items({ value, keywordValue, document, path }) {
    if (!Array.isArray(value)) return [];
    return value.flatMap((item, index) =>
      findSchemaFaults(item, keywordValue as Schema, document, `${path}[${index}]`),
    );
  },
  required({ value, keywordValue, path }) {
    if (!isRecord(value)) return [];
    return (keywordValue as string[]).filter((name) => !(name in value)).map((name) => `${path}.${name} is missing`);
  },
  properties({ value, keywordValue, document, path }) {
    if (!isRecord(value)) return [];
    return Object.entries(value).flatMap(([name, member]) => {
      const schema = (keywordValue as Record<string, Schema>)[name];
      if (schema === undefined) return [`${path}.${name} is not in the document`];
      return findSchemaFaults(member, schema, document, `${path}.${name}`);
    });
  },
  oneOf: (schemaCheck) =>
    faultUnless(countMatches(schemaCheck) === 1, schemaCheck, `fits ${countMatches(schemaCheck)} of oneOf`),
  anyOf: (schemaCheck) => faultUnless(countMatches(schemaCheck) > 0, schemaCheck, "fits none of anyOf"),
};

function countMatches({ value, keywordValue, document, path }: SchemaCheck): number {
  return (keywordValue as Schema[]).filter((schema) => findSchemaFaults(value, schema, document, path).length === 0)
    .length;
}

function isOfType(type: string, value: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "integer") return Number.isSafeInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isRecord(value);
  return typeof value === type;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What "#/components/schemas/X" means. */
function resolvePointer(pointer: string, document: Schema): Schema {
  const found = pointer
    .replace("#/", "")
    .split("/")
    .reduce<unknown>((inside, name) => (inside as Record<string, unknown> | undefined)?.[name], document);
  if (!isRecord(found)) throw new Error(`${pointer} leads nowhere`);
  return found;
}
