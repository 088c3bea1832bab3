import { documentConformance } from "../support/stores/document-conformance.ts";

documentConformance("dynamodb", { canWatch: false });
