"""Operations on single elements: add, relu, clamp, and the faster forms that are proven equal."""
