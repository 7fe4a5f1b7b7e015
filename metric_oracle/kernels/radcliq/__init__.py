"""RadCliQ: the composite of RadGraph F1, BERTScore, CheXbert similarity and BLEU-2 that predicts errors."""
