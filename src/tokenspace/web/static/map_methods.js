/** The projections, and how they are written. */

export const METHODS = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };
