import numpy as np
def assert_transformed(got, tensors, matrix):
    ref=np.einsum('nabc,ax,by,cz->nxyz',tensors,matrix,matrix,matrix,optimize=True)
    bound=np.einsum('nabc,ax,by,cz->nxyz',*map(abs,(tensors,matrix,matrix,matrix)),optimize=True)
    err=(abs(got-ref)/bound).max()
    assert err < 100*np.finfo(got.dtype).eps, err
