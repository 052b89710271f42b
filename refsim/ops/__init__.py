"""One file per operator; files whose name begins with an underscore hold shared pieces and no operator."""
