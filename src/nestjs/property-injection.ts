/** Properties of classes that NestJS instantiates, as its Inject() declares them. */

/** The metadata in which NestJS keeps what its Inject() and Optional() say about the properties of a class. */
const INJECTED_PROPERTIES = "self:properties_metadata";
const OPTIONAL_PROPERTIES = "optional:properties_metadata";

interface InjectedProperty {
  readonly key: string | symbol;
  readonly type: unknown;
}

/** Of the package reflect-metadata, which NestJS needs. */
interface MetadataApi {
  getMetadata?(key: string, target: object): readonly unknown[] | undefined;
  defineMetadata?(key: string, value: unknown, target: object): void;
}

/** @param decorator how the message names who needs it. @throws TypeError if the program has not loaded reflect-metadata */
export function readMetadataApi(decorator: string): Required<MetadataApi> {
  const { getMetadata, defineMetadata } = Reflect as MetadataApi;
  if (getMetadata === undefined || defineMetadata === undefined)
    throw new TypeError(`${decorator} needs the package reflect-metadata: import "reflect-metadata" first`);
  return { getMetadata, defineMetadata };
}

/** As Inject(token) on the property `key`, and Optional(). A subclass has those of its base class. */
export function injectProperty(
  owner: object,
  key: symbol,
  token: unknown,
  { getMetadata, defineMetadata }: Required<MetadataApi>,
  isOptional: boolean = false,
): void {
  const properties = (getMetadata(INJECTED_PROPERTIES, owner) ?? []) as readonly InjectedProperty[];
  if (properties.some((property) => property.key === key)) return;
  defineMetadata(INJECTED_PROPERTIES, [...properties, { key, type: token }], owner);
  if (isOptional) defineMetadata(OPTIONAL_PROPERTIES, [...(getMetadata(OPTIONAL_PROPERTIES, owner) ?? []), key], owner);
}
