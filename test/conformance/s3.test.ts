import { documentConformance } from "../support/stores/document-conformance.ts";

documentConformance("s3", { canWatch: false });
