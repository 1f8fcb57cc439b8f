TITLE = "From kernel to layer: train on packed activations"
