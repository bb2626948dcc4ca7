"""The decoder policy and the text encoder: ``init(key, cfg) -> params`` and pure ``apply`` functions of them."""
